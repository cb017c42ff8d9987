package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// CloseRequest is the value of KeyClose.
type CloseRequest struct {
	Job coord.Revision `json:"job"` // the create-revision of the run's key state/job/N
	By  string         `json:"by"`  // who asks, for people
}

// CloseRequestTTL is how long a request waits for a leader. It outlives a change of leaders.
const CloseRequestTTL = time.Minute

// ObserveCloser records whether the closer that wrote this key still waits for the run's result.
func (l *Leader) ObserveCloser(key string, waits bool) {
	if !waits {
		delete(l.closers, key)
		return
	}
	put(&l.closers, key, true)
}

// ForgetClosers forgets all closers, before the caller observes them again.
func (l *Leader) ForgetClosers() { clear(l.closers) }

// JobKey returns the key of the run's parameters.
func (l *Leader) JobKey() string { return JobKey(l.begun) }

// RequestClose records a request to close the run. The first request stands.
func (l *Leader) RequestClose(by string) {
	if l.outcome == nil && l.closedBy == "" {
		l.closedBy = by
	}
}

// closeIfRequested ends the run if its close was requested. A run whose workers have all exited with 0 has succeeded.
func (l *Leader) closeIfRequested(now time.Duration) {
	if l.closedBy == "" || l.state == ended || l.state == running && l.round.done == len(l.round.members) {
		return
	}
	l.endRun(now, rdzv.Outcome{
		Ending: rdzv.EndClosed, Restarts: l.restarts, Text: "closed by " + l.closedBy, ClosedBy: l.closedBy,
	})
}
