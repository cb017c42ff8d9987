package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Stepped implements rdzv.Handler.
func (h *Handler) Stepped(s rdzv.Steps) {
	h.call(func(now time.Duration) { h.m.RecordSteps(stepTimesOf(now, s)) })
}

// Started implements rdzv.Handler.
func (h *Handler) Started() {
	h.call(func(now time.Duration) { h.m.Started(now) })
}

// usedTimeout bounds how long Used waits for the driving goroutine.
const usedTimeout = time.Second

// Used implements rdzv.Handler.
func (h *Handler) Used() (used *goodput.Goodput, final bool) {
	h.mu.Lock()
	started := h.started
	for _, end := range []*rounds.Ending{h.outcome, h.over} {
		if end != nil && end.Outcome != nil {
			used, final = end.Outcome.Used, true
		}
	}
	h.mu.Unlock()
	if final || !started {
		return used, final
	}
	timeout := time.NewTimer(usedTimeout)
	defer timeout.Stop()
	answer := make(chan *goodput.Goodput, 1)
	select {
	case h.calls <- func(now time.Duration) { answer <- h.m.Used(now) }:
		return <-answer, false
	case <-h.driveDone:
	case <-timeout.C:
	}
	return nil, false
}

// stepTimesOf returns steps with times on the clock of now; nil if there are none.
func stepTimesOf(now time.Duration, s rdzv.Steps) *rounds.StepTimes {
	if len(s.Marks) == 0 {
		return nil
	}
	t := &rounds.StepTimes{Marks: make([]rounds.StepTime, len(s.Marks)), Gap: s.Gap, Fell: s.Fell}
	for i, m := range s.Marks {
		t.Marks[i] = rounds.StepTime{Step: m.Step, At: now - time.Since(m.At)}
	}
	return t
}
