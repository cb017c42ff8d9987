package elastic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// host is a store that this process serves, with its leader.
type host struct {
	log    zerolog.Logger
	server *coord.Server
	front  *rdzv.WorkerStore // serves agents and torch clients, which differ in their first byte; nil if nothing listens
	resign func()            // ends the leader; nil before it has begun
	guard  sync.WaitGroup    // watchFront
	place  hostPlace

	mu             sync.Mutex
	over           bool          // the job has ended
	acknowledged   chan struct{} // closed when the job has ended and every other agent has gone
	isAcknowledged bool
	departed       bool   // a node has left the exit barrier of the round that runs
	stillRunning   string // names the nodes of that round that run, once another one has finished
}

// serve starts the leader of h's store, makes this process the run's host and returns a session for the agent. If it
// fails it closes h.
func (a *C10d) serve(ctx context.Context, h *host) (coord.Store, error) {
	session, err := h.lead(ctx, a.RunID)
	if err != nil {
		return nil, errors.Join(err, h.close(a.TTL))
	}
	a.mu.Lock()
	a.host = h
	a.mu.Unlock()
	a.warnOfOpenStore(h.front)
	return session, nil
}

// warnOfOpenStore warns of a store that everybody in the network can use. front is where it listens; nil for nowhere.
func (a *C10d) warnOfOpenStore(front *rdzv.WorkerStore) {
	files := a.Certificates.Files()
	switch {
	case front == nil || len(a.Secret) > 0 || files.Mutual() || !machine.IsReachable(front.Addr()):
	case files.CA != "":
		a.Logger.Warn().Msgf("agents cannot verify the store at port %d of this machine, because this node has no "+
			"certificate: give it ssl_cert and ssl_cert_key in --rdzv-conf", front.Port())
	case files.Cert != "":
		a.Logger.Warn().Msgf("everybody who can reach port %d of this machine can read, change and end this job: this node "+
			"has a certificate, but nothing to verify agents by; give it ca_cert in --rdzv-conf, or a secret", front.Port())
	default:
		a.Logger.Warn().Msgf("everybody who can reach port %d of this machine can read, change and end this job: it has no "+
			"secret; elasticrun secret > FILE makes one, for --rdzv-secret-file=FILE on each node", front.Port())
	}
}

// hostOn hosts the store on ln and returns a session for the agent. run is the claim to host the run's only store on
// this machine, or nil. hostOn owns both. index is that of the endpoint: 0 is the first.
func (a *C10d) hostOn(ctx context.Context, ln net.Listener, run io.Closer, index int) (coord.Store, error) {
	accept, err := a.Users.Admission(ln, false)
	if err != nil {
		_ = ln.Close()
		if run != nil {
			_ = run.Close()
		}
		return nil, err
	}
	if a.keptTogether() {
		if former := a.storeMember(); former != nil { // it listens elsewhere
			_ = former.close(ctx, false)
		}
		return a.newEndpointMember(ln, run, accept, index).open(ctx) //nolint:contextcheck // the member outlives ctx
	}
	return a.serve(ctx, a.newHost(ln, run, accept))
}

// Stats returns the counters of the server at which this process serves the store. They are zero if it serves none. A
// process that keeps the store together with others has one server after the other.
func (a *C10d) Stats() coord.Stats {
	a.mu.Lock()
	h, m := a.host, a.together
	a.mu.Unlock()
	switch {
	case h != nil:
		return h.server.Stats()
	case m != nil:
		return m.member.Stats()
	}
	return coord.Stats{}
}

// newHost serves a store on ln, or on nothing if ln is nil. run is the claim to host the run's only store on this
// machine, or nil. The host owns both. accept is [tcpstore.ServerOptions.Accept].
func (a *C10d) newHost(ln net.Listener, run io.Closer, accept func(net.Conn) error) *host {
	certificates := a.Certificates
	if a.Socket != "" {
		certificates = nil
	}
	h := &host{
		log: a.Logger,
		server: coord.NewServer(coord.ServerOptions{
			Logger: a.Logger, Version: a.Version, RunID: a.RunID, Secret: a.Secret, SessionTTL: a.TTL,
			Authority: rounds.Authority{}, Certificates: certificates,
		}),
		acknowledged: make(chan struct{}), place: hostPlace{log: a.Logger, run: run},
	}
	if ln == nil {
		return h
	}
	h.front = rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{
		Logger: a.Logger, Accept: accept, Agents: h.server.ServeConn, ShedAgents: h.server.ShedPending,
	})
	h.guard.Go(h.watchFront)
	a.Logger.Info().Stringer("address", ln.Addr()).Msg("hosting the rendezvous")
	h.place.claimPort(a.RunID, h.front.Port())
	h.place.createMarkers(a)
	h.place.warnOfPredecessor(a)
	return h
}

// lead starts the leader, which runs until close, and returns a session for the agent.
func (h *host) lead(ctx context.Context, runID string) (coord.Store, error) {
	leaders, err := h.localSession()
	if err != nil {
		return nil, err
	}
	session, err := h.localSession()
	if err != nil {
		return nil, err
	}
	driver := newLeaderDriver(leaders, runID, h.log)
	driver.onDecision, driver.storeEndsWithRun, driver.freshStore = h.leaderChanged, true, &h.place.fresh
	h.resign = driver.start(ctx)
	return session, nil
}

// removeMarkers removes the markers, unless agents of this store may be alive. The sessions that are left after the
// job's end and the agents' departure belong to agents that wait for the next run, or to observers: neither have
// workers.
func (h *host) removeMarkers(ttl time.Duration) error {
	h.mu.Lock()
	left := h.server.Sessions() > 0 && !h.isAcknowledged
	h.mu.Unlock()
	return h.place.removeMarkers(left, ttl)
}

// watchFront fails the store when the front stops accepting connections: this node's agent must not go on alone. It
// returns when the store has ended.
func (h *host) watchFront() {
	select {
	case <-h.front.Ended():
		if h.front.Err() == nil { // close has closed it
			return
		}
		h.server.Fail(fmt.Errorf("%w: this node's store does not accept connections any more: %w",
			coord.ErrUnavailable, h.front.Err()))
	case <-h.server.Ended():
	}
}

// leaderChanged records the leader's state after a decision.
func (h *host) leaderChanged(l *rounds.Leader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.departed, h.stillRunning = l.HasDeparted(), l.StillRunning()
	if h.over = l.IsOver(); l.Acknowledged() && !h.isAcknowledged {
		h.isAcknowledged = true
		close(h.acknowledged)
	}
}

// localSession returns a session that lives as long as this process.
func (h *host) localSession() (coord.Store, error) {
	s, err := h.server.Local()
	if err != nil {
		return nil, err
	}
	return noExpiry{s}, nil
}

// noExpiry is a session in the store's own process. It needs no keep-alives: whatever stops the agent stops the store
// too.
type noExpiry struct{ coord.Store }

// TTL returns 0: the session does not expire.
func (noExpiry) TTL() time.Duration { return 0 }

// awaitAcknowledged waits, once the job has ended, until the other agents have learned of the end, at most for linger.
func (h *host) awaitAcknowledged(ctx context.Context, linger time.Duration) {
	h.mu.Lock()
	wait := h.over && !h.isAcknowledged
	h.mu.Unlock()
	if !wait {
		return
	}
	h.log.Info().Int("agents", h.server.Sessions()).Msg("waiting for the other nodes to learn that the job has ended")
	bounded, cancel := context.WithTimeout(ctx, linger)
	defer cancel()
	select {
	case <-h.acknowledged:
	case <-bounded.Done():
		h.log.Warn().Int("agents", h.server.Sessions()).Msg("some nodes have not learned that the job has ended")
	}
}

// closeReason returns why the store ends, for the agents that still use it. If a node has departed and the job goes on,
// that node is this one: after the departure of another node, the loss of this one ends the job.
func (h *host) closeReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.departed && !h.over {
		return "the node that hosted it has finished and left; give it a longer --exit-barrier-timeout"
	}
	return "the node that hosted it has ended"
}

// close ends the leader and the store and releases what the host holds, in an order that keeps three rules. The claim
// to the port goes before the port is free. The port goes before the store: an agent of the next run must not find a
// port that only answers workers, which would end its launch. The claim to the run goes last: the next holder finds
// nothing of this store.
func (h *host) close(ttl time.Duration) error {
	if h.resign != nil {
		h.resign()
	}
	if err := h.removeMarkers(ttl); err != nil {
		h.log.Debug().Err(err).Msg("cannot remove the store's markers")
	}
	h.place.releasePort()
	var err error
	if h.front != nil {
		err = h.front.Close()
	}
	err = errors.Join(err, h.server.CloseWith(h.closeReason()))
	h.guard.Wait()
	h.place.releaseRun()
	return err
}
