package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// C10d is the access to a store of elasticrun's own: on one of the agents, which binds the endpoint, or in a process of its own.
type C10d struct {
	RunID   string
	Version string
	Secret  []byte
	// TTL is how long the store keeps the session of an agent that says nothing.
	TTL time.Duration
	// SingleNode is for jobs of one node: nothing listens.
	SingleNode bool
	// Host is the endpoint's. Ports are where the store may be there, first choice first, at least one unless Alone; the store is at one of them.
	Host  string
	Ports []int
	// IsHost says whether this agent hosts the store; nil where that follows from the endpoint.
	IsHost *bool
	// Hint is the rank that this node was given, or -1.
	Hint int
	// Connect makes the connections to the store; nil: by TCP.
	Connect func(ctx context.Context, addr string) (net.Conn, error)
	// Linger is how long the host waits, once the job has ended, for the others to hear of it.
	Linger time.Duration
	Logger zerolog.Logger

	mu        sync.Mutex
	host      *host         // nil where this agent is a client
	client    *coord.Client // the last one
	storePort int           // the port at which it found the store; 0 before
}

// dialPause is between two attempts to reach the store.
const dialPause = 100 * time.Millisecond

// Open implements Access.
func (a *C10d) Open(ctx context.Context) (coord.Store, error) {
	if h := a.hosted(); h != nil {
		return h.localSession()
	}
	if a.SingleNode {
		return a.serve(ctx, nil, nil)
	}
	var last error
	var held time.Time // since when all that may pass by itself is that others have the ports
	began := time.Now()
	complaint := &dialNotice{log: a.Logger, next: began.Add(firstNote)}
	for pause := dialPause; ; pause = min(2*pause, time.Second) {
		store, err := a.attempt(ctx)
		if err == nil {
			return store, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w (%w)", cmp.Or(last, err), context.Cause(ctx))
		}
		switch last = err; {
		case !permanent(err):
			held = time.Time{}
		case held.IsZero() && len(a.candidates()) == 1:
			held = began
		case held.IsZero():
			held = time.Now()
		}
		if permanent(err) && (!portsTaken(err) || time.Since(held) > takenPortTimeout) {
			return nil, err
		}
		complaint.warn(ctx, err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// anotherPause is how long the store of another job, or whoever else has the ports, may take to go: that job may have ended a moment ago.
const takenPortTimeout = 3 * time.Second

// final reports whether it is of no use to try again.
func permanent(err error) bool {
	var busy *rdzv.ListenError
	var taken *PortsTakenError
	return errors.As(err, &busy) || errors.As(err, &taken) || !errors.Is(err, coord.ErrUnavailable) && !errors.Is(err, rdzv.ErrConnection)
}

// passing reports whether a final error is that others have all ports that the store could be at: another job's store the only one.
func portsTaken(err error) bool {
	var refused *coord.RefusedError
	return errors.As(err, new(*PortsTakenError)) || errors.As(err, new(*unreachableError)) ||
		errors.As(err, &refused) && refused.Reason == coord.ReasonRunID
}

// complaint says, now and then, that the store is not reached yet.
type dialNotice struct {
	log  zerolog.Logger
	said int
	next time.Time
}

// about says so when the pauses between the attempts have become long, at the latest after firstNote, and from then on when nextNote asks for it.
func (c *dialNotice) warn(ctx context.Context, err error, pause time.Duration) {
	now := time.Now()
	if now.Before(c.next) && (c.said > 0 || pause < time.Second) {
		return
	}
	line := c.log.Warn().Err(err)
	if deadline, ok := ctx.Deadline(); ok && c.said > 0 {
		line = line.Stringer("left", deadline.Sub(now).Round(time.Second))
	}
	line.Msg("the rendezvous cannot be reached yet; trying on")
	c.said++
	c.next = now.Add(nextNote(c.said, maxNotePause))
}

// attempt hosts the store, if that is this agent's part and nobody does yet, or else connects to it.
func (a *C10d) attempt(ctx context.Context) (coord.Store, error) {
	ports := a.candidates()
	endpoint, err := Resolve(ctx, a.Host, ports[0])
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	first := a.client == nil
	a.mu.Unlock()
	if first && (a.IsHost == nil || *a.IsHost) {
		ifaces, err := Interfaces()
		if err != nil {
			return nil, err
		}
		choice, err := HostChoice(endpoint, ifaces, a.IsHost, a.Hint)
		switch {
		case err != nil:
			return nil, err
		case choice.Candidate && len(ports) > 1:
			return a.hostFirstFree(ctx, endpoint, choice, ports)
		case choice.Candidate:
			return a.hostOnlyPort(ctx, endpoint, choice)
		}
	}
	return a.join(ctx, endpoint, ports)
}

// host is a store in this process, and its leader.
type host struct {
	server *coord.Server
	front  *rdzv.WorkerStore // nil where nothing listens; tells agents from torch's clients, by the first byte they send
	resign func()            // ends the leader
	claim  io.Closer         // to be this machine's store of the run at its port; nil where there is none
	run    io.Closer         // to be this machine's store of the run, at whatever port; nil where there is one candidate
	guard  sync.WaitGroup    // watchFront
	fresh  Fresh
	marker *Marker // nil where nothing listens

	mu             sync.Mutex
	over           bool          // the job has ended
	acknowledged   chan struct{} // closed when it has and no other agent is there any more
	isAcknowledged bool
}

// serve makes this process the store's host. ln may be nil, and so may run, the claim to be the only one of this machine.
func (a *C10d) serve(ctx context.Context, ln net.Listener, run io.Closer) (coord.Store, error) {
	h := &host{
		server: coord.NewServer(coord.ServerOptions{
			Logger: a.Logger, Version: a.Version, RunID: a.RunID, Secret: a.Secret, SessionTTL: a.TTL,
		}),
		acknowledged: make(chan struct{}), run: run,
	}
	if ln != nil {
		h.front = rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{Logger: a.Logger, Agents: h.server.ServeConn, ShedAgents: h.server.ShedPending})
		h.guard.Go(h.watchFront)
		a.Logger.Info().Stringer("address", ln.Addr()).Msg("hosting the rendezvous")
	}
	if ln != nil && run == nil {
		var err error
		if h.claim, err = claim(a.RunID, h.front.Port()); errors.Is(err, syscall.EADDRINUSE) {
			a.Logger.Warn().Msg("another agent of this machine hosts a store for this run id at the same port of another address: " +
				"write the endpoint alike for all agents of a job, and give each job a run id of its own")
		}
	}
	if ln != nil {
		a.createMarker(h)
	}
	leads, err := h.localSession()
	if err != nil {
		return nil, err
	}
	lead := newLead(leads, a.RunID, a.Logger)
	lead.told, lead.hosted, lead.fresh = h.leaderChanged, true, &h.fresh
	h.resign = lead.begin(ctx) // Close ends it
	a.mu.Lock()
	a.host = h
	a.mu.Unlock()
	return h.localSession()
}

// mark leaves this store's marker.
func (a *C10d) createMarker(h *host) {
	var err error
	h.marker, h.fresh, err = CreateMarker(fmt.Sprintf("%s\n%v", a.RunID, a.Ports)) // whatever the endpoint's host is called
	left := (h.fresh.Ended + a.TTL - boottime.Now()).Round(time.Second)
	switch {
	case err != nil:
		a.Logger.Warn().Err(err).Msgf("whether this run had another store here is not known: the first round waits for %v, until no worker of one can be left", left)
	case h.fresh.Predecessor && left > 0:
		a.Logger.Warn().Msgf("an earlier store of run %q ended on this machine while some of its agents were there: the first round waits for %v, until none "+
			"of their workers can be left", a.RunID, left)
	}
}

// unmark takes the marker away, or, where agents of this store or of the one before may be alive, says when the store
// ended. Once the job has ended and its agents are gone, the sessions that are left belong to agents that wait for the
// next run, or to somebody who only looks: they have no workers.
func (h *host) removeMarker(ttl time.Duration) error {
	h.mu.Lock()
	left := h.server.Sessions() > 0 && !h.isAcknowledged
	h.mu.Unlock()
	if left || h.fresh.Predecessor && boottime.Now() < h.fresh.Ended+ttl {
		return h.marker.End()
	}
	return h.marker.Remove()
}

// watchFront ends the store when no agent can reach it any more: its own agent must not go on alone. It returns when the store has ended.
func (h *host) watchFront() {
	select {
	case <-h.front.Ended():
		h.server.Fail(fmt.Errorf("%w: this node's store does not accept connections any more: %w", coord.ErrUnavailable, h.front.Err()))
	case <-h.server.Ended():
	}
}

// told takes note of what the leader knows.
func (h *host) leaderChanged(l *leader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over = l.ended != nil; l.acknowledged() && !h.isAcknowledged {
		h.isAcknowledged = true
		close(h.acknowledged)
	}
}

// local returns a session that lives as long as this process.
func (h *host) localSession() (coord.Store, error) {
	s, err := h.server.Local()
	if err != nil {
		return nil, err
	}
	return noExpiry{s}, nil
}

// immortal is a session in the store's own process, which needs no proof of life: whatever holds up the one holds up the other.
type noExpiry struct{ coord.Store }

// TTL is 0: the session does not end by itself.
func (noExpiry) TTL() time.Duration { return 0 }

// Forget lets the next Open look for the store, or host it, as the first one did.
func (a *C10d) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client, a.storePort = nil, 0
}

func (a *C10d) hosted() *host {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.host
}

// Server is the store that this process hosts; nil where it does not.
func (a *C10d) Server() *coord.Server {
	if h := a.hosted(); h != nil {
		return h.server
	}
	return nil
}

// Front implements Access.
func (a *C10d) Front() *rdzv.WorkerStore {
	if h := a.hosted(); h != nil {
		return h.front
	}
	return nil
}

// StoreAddr is this machine's address on the way to the store or, where the store is here, the one at which most of the others have reached it.
// It is not valid where there is none.
func (a *C10d) StoreAddr() netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.client != nil:
		return a.client.LocalAddr().Addr()
	case a.host == nil || a.host.front == nil:
		return netip.Addr{}
	}
	if at := a.host.server.ReachedAt(); len(at) > 0 {
		return at[0]
	}
	if addr := addrOf(a.host.front.Addr()); !addr.IsUnspecified() {
		return addr
	}
	return netip.Addr{}
}

// Close implements Access.
func (a *C10d) Close(ctx context.Context) error {
	h := a.hosted()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	wait := h.over && !h.isAcknowledged
	h.mu.Unlock()
	if wait {
		a.Logger.Info().Int("agents", h.server.Sessions()).Msg("waiting for the other nodes to hear of the job's end")
		bounded, cancel := context.WithTimeout(ctx, a.Linger)
		defer cancel()
		select {
		case <-h.acknowledged:
		case <-bounded.Done():
			a.Logger.Warn().Int("agents", h.server.Sessions()).Msg("not every node has heard of the job's end")
		}
	}
	h.resign()
	if err := h.removeMarker(a.TTL); err != nil {
		a.Logger.Debug().Err(err).Msg("taking the store's marker away")
	}
	if h.claim != nil {
		_ = h.claim.Close() // before the port is free
	}
	err := h.server.Close()
	h.guard.Wait()
	if h.front != nil {
		err = errors.Join(err, h.front.Close())
	}
	if h.run != nil {
		_ = h.run.Close() // after the port is free: whoever takes it next finds none of this store
	}
	return err
}
