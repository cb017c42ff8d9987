package elastic

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// hostPlace is what an agent that hosts a store has on its machine beside the listener.
type hostPlace struct {
	log     zerolog.Logger
	claim   io.Closer // reserves the run's store at this port of the machine; nil without a claim
	run     io.Closer // reserves the run's store on the machine, at whatever port; nil with one candidate port
	fresh   rounds.FreshStore
	markers []*machine.Marker // none if nothing listens
	unknown error             // why it is not known whether there was an earlier store
	// warnedOfGroup says that writeGroup has warned.
	warnedOfGroup atomic.Bool
}

// claimPort reserves the run's store at a port. With a claim for all ports it does nothing.
func (p *hostPlace) claimPort(runID string, port int) {
	if p.run != nil {
		return
	}
	var err error
	if p.claim, err = machine.Claim(runID, port); errors.Is(err, syscall.EADDRINUSE) {
		p.log.Warn().Msg("another agent on this machine hosts a store for this run id, at the same port of " +
			"another address: use the same endpoint for all agents of a job, and a run id of its own for each job")
	}
}

// createMarkers creates the marker of the run's store. Its name does not depend on how the endpoint's host is spelled.
// A store on a socket has a second marker beside it: containers may share the socket, and not the first marker's
// folder.
func (p *hostPlace) createMarkers(a *C10d) {
	marker, fresh, err := machine.CreateMarker(fmt.Sprintf("%s\n%v", a.RunID, a.Ports))
	p.markers, p.fresh = []*machine.Marker{marker}, fresh
	if a.Socket != "" {
		marker, fresh, socketErr := machine.CreateMarkerIn(filepath.Dir(a.Socket), filepath.Base(a.Socket))
		p.markers, err = append(p.markers, marker), errors.Join(err, socketErr)
		if fresh.HasPredecessor && (!p.fresh.HasPredecessor || fresh.PredecessorEnd > p.fresh.PredecessorEnd) {
			p.fresh = fresh
		}
	}
	p.unknown = err
	p.removeBeside((*machine.Marker).HeirsFile) // no guard of an earlier agent may hand over any more
}

// warnOfPredecessor warns that the first round waits for the workers of an earlier store.
func (p *hostPlace) warnOfPredecessor(a *C10d) {
	left := (p.fresh.PredecessorEnd + a.TTL - boottime.Now()).Round(time.Second)
	switch err := p.unknown; {
	case err != nil:
		p.log.Warn().Err(err).Msgf("cannot find out whether this run had an earlier store on this machine: "+
			"the first round waits %s, until every worker of such a store has ended", seconds.Format(left))
	case p.fresh.HasPredecessor && left > 0:
		p.log.Warn().Msgf("an earlier store of run %q ended on this machine while some of its agents were running: "+
			"the first round waits %s, until all of their workers have ended", a.RunID, seconds.Format(left))
	}
}

// removeMarkers removes the markers. If agents of this store (left) or of the store before may be alive, it instead
// records in the markers that the store ends now.
func (p *hostPlace) removeMarkers(left bool, ttl time.Duration) error {
	p.removeBeside((*machine.Marker).HeirsFile)
	left = left || p.fresh.HasPredecessor && boottime.Now() < p.fresh.PredecessorEnd+ttl
	var all error
	for _, marker := range p.markers {
		finish := marker.Remove
		if left {
			finish = marker.End
		}
		all = errors.Join(all, finish())
	}
	return all
}

// releasePort gives up the claim to the port.
func (p *hostPlace) releasePort() {
	if p.claim != nil {
		_ = p.claim.Close()
	}
}

// releaseRun gives up the claim to the run.
func (p *hostPlace) releaseRun() {
	if p.run != nil {
		_ = p.run.Close()
	}
}
