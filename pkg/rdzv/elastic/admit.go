package elastic

import (
	"fmt"
	"sync"
)

// admission bounds the runs that Leaders lead at a time. Its zero value has admitted none.
type admission struct {
	mu   sync.Mutex
	runs map[string]bool
}

// Admit says why a client of a run cannot have a session, or "" if it can: the run is led already, or may be from now on.
// For whoever is admitted, the run's id must come by the channel of Run. It is for [coord.ServerOptions]'s Admit.
func (l *Leaders) Admit(runID string) (refusal string) {
	a := &l.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.MaxRuns > 0 && len(a.runs) >= l.MaxRuns && !a.runs[runID] {
		return fmt.Sprintf("the store leads %d runs, as many as its memory is for: end some, or give it more memory", len(a.runs))
	}
	a.add(runID)
	return ""
}

// add takes note of a run. mu is held.
func (a *admission) add(runID string) {
	if a.runs == nil {
		a.runs = map[string]bool{}
	}
	a.runs[runID] = true
}

// begin takes note of a run that is led, admitted or not.
func (a *admission) begin(runID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.add(runID)
}

// end gives a run's place back.
func (a *admission) end(runID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.runs, runID)
}
