package elastic

import (
	"strings"
	"time"
)

// missed takes note that the worker store of the round is not reached, for so long now. The leader hears of it at once; how long it took in the end
// stands in the next report.
func (m *member) missed(took time.Duration, why string) {
	if m.state != busy {
		return
	}
	first := m.report.Unreached == nil
	m.report.Unreached = &Unreached{For: took, Why: shortened(why)}
	m.dirty = m.dirty || first
}

// reached takes note that it is.
func (m *member) reached() {
	if m.state == busy && m.report.Unreached != nil {
		m.report.Unreached, m.dirty = nil, true
	}
}

// maxWhy is how much of an error travels in a report, in bytes.
const maxWhy = 300

func shortened(why string) string { return strings.ToValidUTF8(why[:min(len(why), maxWhy)], "") }

// why says it for people.
func (u *Unreached) why() string {
	if u == nil || u.Why == "" {
		return "no reason given"
	}
	return u.Why
}
