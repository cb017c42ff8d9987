package elastic

import (
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// closeRequest is the value of keyClose.
type closeRequest struct {
	Job coord.Revision `json:"job"` // the create-revision of the run's key state/job/N
	By  string         `json:"by"`  // who asks, for people
}

// closeRequestTTL is how long a request waits for a leader. It outlives a change of leaders.
const closeRequestTTL = time.Minute

// observeCloser records whether whoever has written this key waits for the result of a request to close the run.
func (l *leader) observeCloser(key string, waits bool) {
	if !waits {
		delete(l.closers, key)
		return
	}
	if l.closers == nil {
		l.closers = map[string]bool{}
	}
	l.closers[key] = true
}

// forgetClosers forgets who waits for the result, before all are observed again.
func (l *leader) forgetClosers() { clear(l.closers) }

// jobKey returns the key of the run's parameters.
func (l *leader) jobKey() string { return jobKey(l.begun) }

// requestClose records that the run is to be closed. The first request stands.
func (l *leader) requestClose(by string) {
	if l.outcome == nil && l.closedBy == "" {
		l.closedBy = by
	}
}

// closeIfRequested ends the run if that was requested. A run whose workers have all exited with 0 has succeeded.
func (l *leader) closeIfRequested(now time.Duration) {
	if l.closedBy == "" || l.state == ended || l.state == running && l.round.done == len(l.round.members) {
		return
	}
	l.endRun(now, rdzv.Outcome{
		Ending: rdzv.EndClosed, Restarts: l.restarts, Text: "closed by " + l.closedBy, ClosedBy: l.closedBy,
	})
}
