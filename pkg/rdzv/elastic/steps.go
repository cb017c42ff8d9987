package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Stepped implements rdzv.Handler.
func (h *Handler) Stepped(s rdzv.Steps) {
	h.call(func(now time.Duration) { h.m.recordSteps(stepTimesOf(now, s)) })
}

// Started implements rdzv.Handler.
func (h *Handler) Started() {
	h.call(func(now time.Duration) { h.m.started(now) })
}

// usedTimeout bounds how long Used waits for the driving goroutine.
const usedTimeout = time.Second

// Used implements rdzv.Handler.
func (h *Handler) Used() (used *goodput.Goodput, final bool) {
	h.mu.Lock()
	started := h.started
	for _, end := range []*ending{h.outcome, h.over} {
		if end != nil && end.outcome != nil {
			used, final = end.outcome.Used, true
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
	case h.calls <- func(now time.Duration) { answer <- h.m.used(now) }:
		return <-answer, false
	case <-h.driveDone:
	case <-timeout.C:
	}
	return nil, false
}

// stepTimesOf returns steps with times on the clock of now; nil if there are none.
func stepTimesOf(now time.Duration, s rdzv.Steps) *stepTimes {
	if len(s.Marks) == 0 {
		return nil
	}
	t := &stepTimes{Marks: make([]stepTime, len(s.Marks)), Gap: s.Gap, Fell: s.Fell}
	for i, m := range s.Marks {
		t.Marks[i] = stepTime{m.Step, now - time.Since(m.At)}
	}
	return t
}
