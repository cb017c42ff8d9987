package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// C10d is the access to elasticrun's own store. The agent that binds the endpoint hosts the store, several agents keep
// it together (Voters), or a separate process serves it (elasticrun store).
type C10d struct {
	RunID   string
	Version string
	Secret  []byte
	// Users may meet at the store if only this machine can reach it.
	Users *StoreUsers
	// Certificates are the site's certificates, or nil. They are not used at a Unix socket. The store's certificate must
	// have one of ServerNames; if there are none, it must have Host.
	Certificates *certfiles.Set
	ServerNames  []string
	// TTL is how long the store keeps a session without a keep-alive.
	TTL time.Duration
	// SingleNode is for jobs of one node: this process hosts the store, and nothing listens.
	SingleNode bool
	// Host is the endpoint's host. Ports are the ports at which the store may be, first choice first. There is at least
	// one, unless SingleNode or Socket is set.
	Host  string
	Ports []int
	// Socket is the path of a Unix socket at which the store is, in a folder of this user alone. If it is set, the first
	// agent hosts the store. Host, IsHost, Hint and Connect then have no effect, and Ports only enter the name of the
	// store's marker.
	Socket string
	// IsHost says whether this agent hosts the store. Nil derives it from the endpoint.
	IsHost *bool
	// ServesWorkers says that the host serves the workers too, as with the static backend. A store that serves any run
	// cannot take its place.
	ServesWorkers bool
	// Hint is the rank that this node was given, or -1.
	Hint int
	// More are further endpoints, after Host: the store may be there too once the agents keep it together.
	More []StoreHost
	// AdviseEndpoints says that the user can name further endpoints: the log of a job with one says what they add.
	AdviseEndpoints bool
	// Voters is how many agents keep the store together, if there are enough: 3 or 5. Below 3 one agent hosts it.
	Voters int
	// Label distinguishes jobs that may have the same run id: two stores of a run are one job's if their labels are equal.
	// LaunchID is the id of this agent's launch; empty if it is not known.
	Label, LaunchID string
	// MinNodes is the smallest number of nodes of a round, MaxNodes the largest.
	MinNodes, MaxNodes int
	// LocalAddr is the address at which other nodes reach this one. Empty means the address that the connection to the
	// store has here. MemberPorts are the ports that this agent may use to keep the store; a range of one is ignored.
	LocalAddr   string
	MemberPorts machine.Ports
	// Store, if not nil, is [group.Options.Store]. After an error no other agent takes over.
	Store func(stored []byte) error
	// Connect dials the store. Nil dials by TCP.
	Connect func(ctx context.Context, addr string) (net.Conn, error)
	// Linger is how long the host waits, once the job has ended, until the other agents have learned of the end.
	Linger time.Duration
	Logger zerolog.Logger

	role coord.Role // of the session

	mu       sync.Mutex
	host     *host          // nil if this agent is a client, or keeps the store together with others
	taken    *takenEndpoint // this machine's endpoint, while another agent may listen there; nil if there is none
	together *storeMember   // nil while this agent keeps no store together with others
	client   *coord.Client  // the last one
	// knowsMembers says that the agent has learned who keeps the store.
	knowsMembers bool
	proof        time.Duration // send time of the latest answered keep-alive, on the clock of package boottime
	storePort    int           // the port at which the client found the store; 0 before
	refused      time.Time     // since when Open finds that nobody listens at the endpoint; zero if that is not known
	maxWait      time.Duration // how long one of several candidates may make this agent wait
	waited       bool          // one of them has made it wait that long

	warnedOfOneMachine bool // two endpoints are this machine
}

// dialPause is the shortest pause between two attempts to reach the store.
const dialPause = 100 * time.Millisecond

// Open implements Access.
func (a *C10d) Open(ctx context.Context) (coord.Store, error) {
	if h := a.hosted(); h != nil {
		return h.localSession()
	}
	if a.SingleNode {
		return a.serve(ctx, a.newHost(nil, nil, nil))
	}
	var last error
	var taken time.Time // since when every attempt has failed only because the ports are taken
	began := time.Now()
	notice := &dialNotice{log: a.Logger, next: began.Add(rounds.FirstNotice)}
	for pause := dialPause; ; pause = min(2*pause, time.Second) {
		store, err := a.attempt(ctx)
		a.mu.Lock()
		a.refused = coord.RefusedSince(a.refused, err)
		a.mu.Unlock()
		if err == nil {
			return store, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w (%w)", cmp.Or(last, err), context.Cause(ctx))
		}
		switch last = err; {
		case !permanent(err):
			taken = time.Time{}
		case taken.IsZero() && len(a.candidates()) == 1:
			taken = began
		case taken.IsZero():
			taken = time.Now()
		}
		mayPass := portsTaken(err) || len(a.Secret) > 0 && unproved(err)
		if permanent(err) && (!mayPass || time.Since(taken) > takenPortTimeout) {
			return nil, err
		}
		notice.warn(ctx, err, pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// takenPortTimeout is how long Open waits for taken ports to become free: the job that has them may just have ended. An
// agent with a secret also waits that long for a store that proves to have the secret.
const takenPortTimeout = 3 * time.Second

// permanent reports whether another attempt cannot help, unless another process gives up a port.
func permanent(err error) bool {
	var busy *rdzv.ListenError
	var taken *PortsTakenError
	return errors.As(err, &busy) || errors.As(err, &taken) ||
		!errors.Is(err, coord.ErrUnavailable) && !errors.Is(err, rdzv.ErrConnection)
}

// portsTaken reports whether a permanent error means that other processes have every candidate port, or that another
// agent of this machine hosts the run at another socket. A single candidate port counts only if another job's store has
// it.
func portsTaken(err error) bool {
	var refused *coord.RefusedError
	return errors.As(err, new(*PortsTakenError)) || errors.As(err, new(*unreachableError)) ||
		errors.As(err, new(*LocalHostError)) ||
		errors.As(err, &refused) && refused.Reason == coord.ReasonRunID
}

// unproved reports whether err is the answer of somebody who has not proved to have the secret: the store of an earlier
// job at the same port, or somebody who wants to keep the agent out.
func unproved(err error) bool {
	if refused, ok := errors.AsType[*coord.RefusedError](err); ok {
		return refused.Reason == coord.ReasonSecret || refused.Reason == coord.ReasonProtocol
	}
	return errors.As(err, new(*coord.DialError))
}

// dialNotice warns at growing intervals that the store cannot be reached.
type dialNotice struct {
	log   zerolog.Logger
	count int
	next  time.Time
}

// warn logs err if a warning is due. The first one is due once the pauses between attempts have reached a second, at
// the latest after FirstNotice; NoticePause spaces the others.
func (n *dialNotice) warn(ctx context.Context, err error, pause time.Duration) {
	now := time.Now()
	if now.Before(n.next) && (n.count > 0 || pause < time.Second) {
		return
	}
	line := n.log.Warn().Err(err)
	if deadline, ok := ctx.Deadline(); ok {
		line = line.Str("gives_up_in", rounds.FormatLeft(deadline.Sub(now)))
	}
	line.Msg("cannot reach the rendezvous yet; retrying")
	n.count++
	n.next = now.Add(rounds.NoticePause(n.count, rounds.MaxNoticePause))
}

// attempt connects to the store once. It hosts the store instead if this agent may, and nobody hosts it yet.
func (a *C10d) attempt(ctx context.Context) (coord.Store, error) {
	a.mu.Lock()
	first := a.client == nil || a.mayTakeEndpoint()
	if a.waited {
		a.maxWait *= 2
	}
	a.maxWait, a.waited = min(max(a.maxWait, firstMaxWait), lastMaxWait), false
	together := a.together
	a.mu.Unlock()
	if together != nil && together.place != nil {
		return together.open(ctx)
	}
	if store := a.rejoinMembers(ctx); store != nil {
		return store, nil
	}
	if a.Socket != "" {
		return a.attemptLocal(ctx, first)
	}
	if store, err := a.hostFurther(ctx, first); store != nil || err != nil {
		return store, err
	}
	ports := a.candidates()
	endpoint, err := machine.Resolve(ctx, a.Host, ports[0])
	if err != nil {
		return a.joinFurther(ctx, err)
	}
	if first && (a.IsHost == nil || *a.IsHost) {
		ifaces, err := machine.Interfaces()
		if err != nil {
			return nil, err
		}
		choice, err := machine.HostChoice(endpoint, ifaces, a.IsHost, a.Hint)
		switch {
		case err != nil:
			return nil, err
		case choice.Candidate && len(ports) > 1:
			return a.hostFirstFree(ctx, endpoint, choice, ports)
		case choice.Candidate:
			return a.hostOnlyPort(ctx, endpoint, choice)
		}
	}
	if len(a.More) > 0 {
		return a.joinFurther(ctx, nil)
	}
	return a.join(ctx, endpoint, ports)
}

// Forget makes the next Open look for the store, or host it, as the first one did.
func (a *C10d) Forget() {
	a.mu.Lock()
	a.client, a.storePort = nil, 0
	m := a.together
	a.mu.Unlock()
	if m != nil {
		m.forget()
	}
}

// RefusedSince returns since when each attempt to reach the store has found that nobody listens there. It is zero while
// the store answers, and if the latest attempt ended otherwise.
func (a *C10d) RefusedSince() time.Time {
	a.mu.Lock()
	refused, client := a.refused, a.client
	a.mu.Unlock()
	if refused.IsZero() && client != nil {
		return client.RefusedSince()
	}
	return refused
}

// rejoinMembers opens a session at one of the addresses that the client of the agent's former session knows, except the
// one in its options. It returns nil if none answers.
func (a *C10d) rejoinMembers(ctx context.Context) coord.Store {
	a.mu.Lock()
	former := a.client
	a.mu.Unlock()
	if former == nil || !a.keptTogether() {
		return nil
	}
	for _, addr := range former.Addrs() {
		if addr == former.Addr() {
			continue
		}
		opts := a.clientOptions(addr, a.Host)
		opts.Timeout = founding.MemberTimeout
		if client, err := coord.Dial(ctx, opts); err == nil {
			a.setClient(client)
			return client
		}
	}
	return nil
}

// setClient records the latest session. An agent helps to keep only the store in which it has a session.
func (a *C10d) setClient(client *coord.Client) {
	a.mu.Lock()
	a.client = client
	m := a.together
	a.mu.Unlock()
	if m != nil {
		m.followClient(client)
	}
}

// sessionIn returns the instance of the store in which the agent has a session, or "".
func (a *C10d) sessionIn() string {
	a.mu.Lock()
	client := a.client
	a.mu.Unlock()
	if client == nil {
		return ""
	}
	select {
	case <-client.Lost():
		return ""
	default:
		return client.InstanceID()
	}
}

func (a *C10d) hosted() *host {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.host
}

// StillRunning names the nodes of the round whose workers still run, as far as this process knows: it must host the
// store. The result is empty otherwise.
func (a *C10d) StillRunning() string {
	a.mu.Lock()
	h, m := a.host, a.together
	a.mu.Unlock()
	switch {
	case h != nil:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.stillRunning
	case m != nil:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.running
	}
	return ""
}

// Front implements Access.
func (a *C10d) Front() *rdzv.WorkerStore {
	if h := a.hosted(); h != nil {
		return h.front
	}
	return nil
}

// StoreAddr returns this machine's address on the route to the store. If this process hosts the store, it is the
// address at which most of the other agents have reached it. The result is not valid if there is no such address.
func (a *C10d) StoreAddr() netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	a.mu.Lock()
	client, h, m := a.client, a.host, a.together
	a.mu.Unlock()
	var front *rdzv.WorkerStore
	var reachedAt []netip.Addr
	switch {
	case client != nil && client.LocalAddr().IsValid():
		return client.LocalAddr().Addr()
	case h != nil && h.front != nil:
		front, reachedAt = h.front, h.server.ReachedAt()
	case m != nil && m.front != nil:
		front, reachedAt = m.front, m.member.ReachedAt()
	default:
		return netip.Addr{}
	}
	if len(reachedAt) > 0 {
		return reachedAt[0]
	}
	if addr := front.Addr().AddrPort().Addr().Unmap(); !addr.IsUnspecified() {
		return addr
	}
	return netip.Addr{}
}

// Close implements Access. A host first waits until the other agents have learned of the job's end, at most for Linger.
// Agents that keep the store together do the same if over is true; otherwise they hand over to the others.
func (a *C10d) Close(ctx context.Context, over bool) error {
	if m := a.storeMember(); m != nil {
		return m.close(ctx, over)
	}
	h := a.hosted()
	if h == nil {
		return nil
	}
	h.awaitAcknowledged(ctx, a.Linger)
	return h.close(a.TTL)
}
