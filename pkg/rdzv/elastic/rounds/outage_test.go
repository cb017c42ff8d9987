package rounds

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestOutageTimes checks the times of docs/design/rendezvous.md for a silent store, with the default keep-alive time.
func TestOutageTimes(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/design/rendezvous.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	const ttl = 15 * time.Second
	m := NewMember(MemberOptions{Job: Job{JoinTimeout: 10 * time.Minute}, TTL: ttl}, 0)
	m.state = busy
	var warnings []string
	stopped := time.Duration(0)
	for now := time.Duration(0); now < ttl && stopped == 0; now += 100 * time.Millisecond {
		m.Tick(now)
		for _, o := range m.TakeOrders() {
			if o.Stop != nil {
				stopped = now
			}
			if o.Warning != "" {
				warnings = append(warnings, now.String()+": "+o.Warning)
			}
		}
	}
	const want = "6s: the job's store has not answered for 6s: without an answer this node stops its workers in 4s, and " +
		"gives up 10m after that"
	if len(warnings) != 1 || warnings[0] != want {
		t.Errorf("warnings %q, want %q", warnings, want)
	}
	says := "After " + quietAfter(ttl).String() + " without an answer the agent warns, and after " + stopped.String() +
		" it stops its workers"
	if !strings.Contains(text, says) {
		t.Errorf("the page does not say: %s", says)
	}
}
