package elastic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// storeMember is this process's part in a store that the agents of a run keep together: its member of the store's
// group, and the listener at which clients and other members reach it. The agent is a client of the store like any
// other.
//
//	storemember.go           the member, its leader of the rendezvous, the agent's session
//	storemember_found.go     the agent at the endpoint founds a group, or finds that another one goes on already
//	storemember_follow.go    what it announces of its group, and what it does when it hears of another one
//	package founding         the decisions about that, which are pure
//	storemember_close.go     how this process leaves the group, and how the group ends with the job
//	earliergroup.go          the file that says that others may go on
type storeMember struct {
	access   *C10d
	log      zerolog.Logger
	member   *group.Member
	listener interface{ Close() error }
	place    *hostPlace         // nil unless it listens at the endpoint
	front    *rdzv.WorkerStore  // the listener at the endpoint
	tasks    sync.WaitGroup     // goroutines that release waits for
	wake     chan struct{}      // signals the leader of the rendezvous that the voters may have changed; capacity 1
	began    time.Time          // of this process's part
	cancel   context.CancelFunc // ends tasks

	closeOnce sync.Once
	closeErr  error

	mu sync.Mutex
	founding.State
	changed      chan struct{}     // closed and replaced by each update
	founded      bool              // this process is about to found the group
	acknowledged bool              // this process leads, the job has ended, and all agents know
	deserted     bool              // this process leads, and all agents have left, or leave
	running      string            // names the nodes of the round that run, once another one has finished
	candidates   []group.Candidate // that the latest decision has named
	formerAddrs  []string          // the agents of a former group, where this one is announced
	voters       voterWatch
	// noRecord and noHeirsFile are why no other agent can take over from this one: the guard has no record, or there is no
	// file of heirs. Both are nil if one can, and before the first attempt.
	noRecord, noHeirsFile error
	problem               string // why a loss may end the job, while this process leads and has said so
}

// keptTogether reports whether the agents may keep the store together.
func (a *C10d) keptTogether() bool { return a.Voters >= rounds.MinVoters }

// newEndpointMember makes this process, which listens at the endpoint, a member of the store's group. It owns ln and
// run. accept is [tcpstore.ServerOptions.Accept], and index that of the endpoint.
func (a *C10d) newEndpointMember(
	ln net.Listener, run interface{ Close() error }, accept func(net.Conn) error, index int,
) *storeMember {
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	m := a.newStoreMember(net.JoinHostPort(a.hostOf(index).Host, port))
	m.Index = index
	m.front = rdzv.ServeWorkerStore(ln, tcpstore.ServerOptions{
		Logger: a.Logger, Accept: accept, Agents: m.member.ServeConn, ShedAgents: m.member.ShedPending,
	})
	m.listener = m.front
	m.place = &hostPlace{log: a.Logger, run: run}
	m.place.claimPort(a.RunID, m.front.Port())
	m.place.createMarkers(a)
	m.Earlier = m.place.readEarlierGroup(a)
	m.setAnnounced(nil)
	a.mu.Lock()
	a.together = m
	a.mu.Unlock()
	m.tasks.Go(m.watchFront)
	return m
}

// JoinStore makes this process a candidate for the store's group, unless it is one, and returns the address at which
// the group reaches it. It returns "" if this node has no address or port for that, or if stop is closed. If another
// agent has the endpoint that is this machine, JoinStore waits for it for a while: it may be this node's former agent,
// which is about to end.
func (a *C10d) JoinStore(ctx context.Context, stop <-chan struct{}) (string, error) {
	a.mu.Lock()
	m, client := a.together, a.client
	a.mu.Unlock()
	if m == nil {
		m = a.awaitEndpoint(ctx, stop)
	}
	select {
	case <-stop:
		return "", nil
	default:
	}
	if m != nil {
		return m.Addr, nil
	}
	host := a.LocalAddr
	addr := client.LocalAddr().Addr().Unmap()
	if host == "" && addr.IsValid() && addr.Zone() == "" && !addr.IsLoopback() {
		host = addr.String()
	}
	if host == "" {
		return "", nil
	}
	ln, err := a.listenMember(ctx)
	if err != nil {
		return "", err
	}
	accept, err := a.Users.Admission(ln, false)
	if err != nil {
		return "", errors.Join(err, ln.Close())
	}
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	m = a.newStoreMember(net.JoinHostPort(host, port)) //nolint:contextcheck // it outlives ctx
	m.listener = serveMembers(ln, accept, m.member, a.Logger)
	m.setAnnounced(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.together = m
	return m.Addr, nil
}

func (a *C10d) newStoreMember(addr string) *storeMember {
	ctx, cancel := context.WithCancel(context.Background())
	m := &storeMember{
		access: a, log: a.Logger, began: time.Now(), wake: make(chan struct{}, 1), changed: make(chan struct{}),
		cancel: cancel,
	}
	m.State = founding.State{
		TTL: a.TTL, Addr: addr, Index: founding.NotAtEndpoint,
		Job: founding.EarlierGroup{Label: a.Label, Launch: a.LaunchID, Min: a.MinNodes},
	}
	m.member = group.New(group.Options{
		Addr: addr,
		Server: coord.ServerOptions{
			Logger: a.Logger, Version: a.Version, RunID: a.RunID, Secret: a.Secret, SessionTTL: a.TTL,
			Authority: rounds.Authority{}, Certificates: a.Certificates,
		},
		Dial: a.memberOptions(), Connect: a.Connect, Voters: a.Voters,
		First: a.endpoints(-1)[0], Tick: storeTick, Logger: a.Logger,
		Lead: m.lead, OnChange: m.onChange, OnGroup: func(other group.Announcement) {
			m.tasks.Go(func() { m.consider(ctx, other) })
		},
		Store: m.store, MayTakeOver: m.mayTakeOver, TakeOverTime: founding.TakeOverTime(a.TTL),
	})
	return m
}

// storeTick is the group's tick. With it the voters elect another leader about a second after the former one has fallen
// silent. An agent that is only slow for that long loses the lead and nothing else.
const storeTick = 70 * time.Millisecond

// storeMember returns this process's part in the store, or nil.
func (a *C10d) storeMember() *storeMember {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.together
}

// watchFront ends the member when the listener at the endpoint ends by itself.
func (m *storeMember) watchFront() {
	<-m.front.Ended()
	if err := m.front.Err(); err != nil {
		m.log.Error().Err(err).Msg("this node cannot help to keep the job's store any more: it accepts no connections")
		_ = m.member.Close() // whose error is the front's
	}
}

// open returns a session for the agent. It first makes sure that there is a group.
func (m *storeMember) open(ctx context.Context) (coord.Store, error) {
	if m.place != nil {
		client, err := m.findGroup(ctx)
		switch {
		case err != nil:
			return nil, err
		case client != nil:
			return client, nil
		}
	}
	return m.dial(ctx)
}

// dial opens a session through this process's own member, which may refer the client to another one.
func (m *storeMember) dial(ctx context.Context) (coord.Store, error) {
	opts := m.access.clientOptions(m.Addr, m.access.Host)
	opts.Conn, opts.AnyName = m.connect, true
	client, err := coord.Dial(ctx, opts)
	if err != nil {
		return nil, err
	}
	m.access.setClient(client)
	return client, nil
}

// connect connects to this process's own member.
func (m *storeMember) connect(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	m.member.ServeConn(there)
	return here, nil
}

// memberOptions returns how this process's member connects to the others of its group.
func (a *C10d) memberOptions() coord.DialOptions {
	opts := a.dialOptions("", a.Host)
	opts.AnyName = true
	return opts
}

// clientOptions returns how the agent's client connects to a member of the store's group.
func (a *C10d) clientOptions(addr, host string) coord.DialOptions {
	opts := a.dialOptions(addr, host)
	opts.Role, opts.TTL = a.role, a.TTL
	opts.Adapt = a.adapt
	a.adapt(&opts)
	return opts
}

// adapt completes the options for another address of the store's group.
func (a *C10d) adapt(o *coord.DialOptions) {
	addr := o.Addr
	o.AnyName = !a.isEndpoint(addr)
	if m := a.storeMember(); m != nil && m.Addr == addr {
		o.Conn, o.Verify, o.AnyName = m.connect, nil, true
		return
	}
	if a.Connect != nil {
		o.Conn = func(ctx context.Context) (net.Conn, error) { return a.Connect(ctx, addr) }
	}
	if at, err := netip.ParseAddrPort(addr); err == nil {
		verify, err := a.verification(at.Addr())
		if o.Verify = verify; err != nil {
			o.Verify = func(net.Conn) error { return err }
		}
	}
}

// lead starts the leader of the rendezvous beside a server of the store.
func (m *storeMember) lead(server *coord.Server) (stop func()) {
	session, err := server.Local()
	if err != nil { // the server has ended
		return func() {}
	}
	d := newLeaderDriver(noExpiry{session}, m.access.RunID, m.log)
	d.onDecision, d.storeEndsWithRun, d.group = m.decided, true, m
	m.mu.Lock()
	if m.founded && m.place != nil {
		d.freshStore, m.founded = &m.place.fresh, false // later servers begin with the group's sessions
	}
	m.mu.Unlock()
	return d.start(context.Background())
}

// onChange records a new state of the group.
func (m *storeMember) onChange(s group.Status) {
	var news, leads bool
	m.update(func() {
		news, leads = s.Leader != m.Status.Leader && s.Leader != "", s.Leading && !m.Status.Leading
		m.Observe(time.Now(), s)
		m.acknowledged, m.deserted = m.acknowledged && s.Leading, m.deserted && s.Leading
	})
	m.wakeLeader()
	if news {
		m.access.expectStore(s.Leader)
	}
	if leads {
		m.tasks.Go(m.notifyOthers)
	}
}

// wakeLeader makes the leader of the rendezvous write where the store is, if that has changed.
func (m *storeMember) wakeLeader() { signal(m.wake) }

// update changes fields, and wakes the goroutines that wait for a change.
func (m *storeMember) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	m.watchVoters()
	close(m.changed)
	m.changed = make(chan struct{})
}

// decided records what the leader of the rendezvous has decided, before it is written.
func (m *storeMember) decided(l *rounds.Leader) {
	candidates, acknowledged, deserted := l.StoreCandidates(), l.Acknowledged(), l.AllLeave()
	running := l.StillRunning()
	m.mu.Lock()
	same, leads := slices.Equal(candidates, m.candidates), m.Status.Leading
	m.mu.Unlock()
	if !leads { // the store has another leader, or none, and the decision will fail
		return
	}
	m.update(func() {
		m.candidates, m.acknowledged, m.deserted, m.running = candidates, acknowledged, deserted, running
	})
	m.setKnown(rounds.AddrsOf(candidates), l.Staying()-len(candidates)) // before anybody can go on without this process
	if !same {
		m.member.SetCandidates(candidates)
	}
}

// HostsAlone reports whether other agents lose the store with this process, because no other process keeps it.
func (a *C10d) HostsAlone() bool {
	m := a.storeMember()
	if m == nil {
		return a.hosted() != nil && !a.SingleNode
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Status.Leading && len(m.Status.Voters) == 1
}
