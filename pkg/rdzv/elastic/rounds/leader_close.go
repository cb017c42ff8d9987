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

// ObserveCloser records whether whoever has written this key waits for the result of a request to close the run.
func (l *Leader) ObserveCloser(key string, waits bool) {
	if !waits {
		delete(l.closers, key)
		return
	}
	if l.closers == nil {
		l.closers = map[string]bool{}
	}
	l.closers[key] = true
}

// ForgetClosers forgets who waits for the result, before all are observed again.
func (l *Leader) ForgetClosers() { clear(l.closers) }

// JobKey returns the key of the run's parameters.
func (l *Leader) JobKey() string { return JobKey(l.begun) }

// RequestClose records that the run is to be closed. The first request stands.
func (l *Leader) RequestClose(by string) {
	if l.outcome == nil && l.closedBy == "" {
		l.closedBy = by
	}
}

// closeIfRequested ends the run if that was requested. A run whose workers have all exited with 0 has succeeded.
func (l *Leader) closeIfRequested(now time.Duration) {
	if l.closedBy == "" || l.state == ended || l.state == running && l.round.done == len(l.round.members) {
		return
	}
	l.endRun(now, rdzv.Outcome{
		Ending: rdzv.EndClosed, Restarts: l.restarts, Text: "closed by " + l.closedBy, ClosedBy: l.closedBy,
	})
}
