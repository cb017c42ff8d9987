package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// Options are the options of a Member.
type Options struct {
	// Addr is the address, HOST:PORT, at which the other members and the clients reach this process.
	Addr string
	// Server are the options of the store. The member chooses InstanceID, Elsewhere and OnMember.
	Server coord.ServerOptions
	// Dial are the options for connections to other members. The member chooses Addr, Conn, Role and TTL.
	Dial coord.DialOptions
	// Connect connects to an address. Nil connects by TCP.
	Connect func(ctx context.Context, addr string) (net.Conn, error)
	// Lead, if not nil, is called with the server when this member begins to lead. The store does no work of a leader by
	// itself: Lead starts that work. Its stop is called when the server has ended, and Lead is not called again before
	// stop has returned.
	Lead func(*coord.Server) (stop func())
	// OnChange, if not nil, is called with each new state of the group. It must neither block nor call the Member.
	OnChange func(Status)
	// OnGroup, if not nil, is called with each announcement by the leader of a group that this process does not belong to.
	// It must neither block nor call the Member, except from another goroutine.
	OnGroup func(Announcement)
	// Store, if not nil, is called with the data that this process's guard needs for [TakeOver]. It is called before
	// anything that the data does not cover leaves the process. The data is nil while no other member can take over. Store
	// must not block. It costs time only while this member is the only voter.
	Store func(stored []byte)
	// TakeOverTime is how long after its leader's last message this member may take over. It must be shorter than the time
	// after which others may begin another store. 0 means no limit.
	TakeOverTime time.Duration
	// MayTakeOver, if not nil, is asked before this member takes over the group with that instance id. It must neither
	// block nor call the Member.
	MayTakeOver func(instance string) bool
	// Voters is the number of voting members if enough processes are available: 1, 3 or 5. 0 means 3.
	Voters int
	// First is the address of the process that keeps the store alone if only one voter is possible. "" means the leader.
	First string
	// Tick is the unit of the group's times. Another member replaces a leader that was silent for 10 to 14 ticks. Another
	// voter replaces a voter that was silent for 20 ticks. 0 means 100 ms.
	Tick   time.Duration
	Logger zerolog.Logger
}

const (
	electionTicks = 10  // a leader stops leading after hearing from no majority for so long
	missingTicks  = 5   // after so much silence a voter may be lost
	silentTicks   = 20  // after so much silence a voter is replaced
	replaceTicks  = 30  // a leaving or lost member waits so long for its replacement
	refusedTicks  = 100 // a process that was silent when asked to join is not asked again for so long
	slowTicks     = 600 // a learner that lacks entries for so long is removed
)

// Member is this process's part in the group. Use New.
type Member struct {
	opts    Options
	log     zerolog.Logger
	done    chan struct{} // closed by Close
	calls   chan func()   // for the loop
	inbox   chan incoming // from other members
	running sync.WaitGroup

	// The loop's:
	ticker     *time.Ticker     // stopped while this process is in no group
	ticked     bool             // the first tick, which comes at a random time, is past
	replica    *replica.Replica // nil while this process is in no group
	id         replica.ID
	instance   string                         // of the latest group; the process's own id before its first group
	gone       bool                           // Leave was called: the process joins no group
	dissolving bool                           // the server ends for good
	waiting    map[replica.Ticket]func(error) // called with the outcome of each request
	peers      map[string]*peer
	snapshots  map[replica.ID]*snapshot // on their way to other members
	addrs      map[replica.ID]string    // of members that have sent frames
	serving    *serving                 // nil while this member does not serve
	stored     replica.Acknowledged     // the value that Options.Store received last
	heardAt    time.Time                // when this member last heard from a leader
	servedTerm uint64                   // the term of the latest server in this group, or 0
	lastServed <-chan struct{}          // closed when the latest server has ended
	// newServer is coord.NewSharedServer; a test delays it.
	newServer func(coord.SharedKeeper, coord.Contents, coord.ServerOptions) (*coord.Server, error)
	announced []string // where this member, while it leads, announces the group
	label     string   // the label of the announcements
	retries   []func() // requests that the replica had no room for; the next tick repeats them
	manager   manager
	left      []chan<- error // one for each call of Leave
	reading   reading        // of the frames of other members

	mu         sync.Mutex
	closed     bool
	inbound    map[net.Conn]bool // connections of other members
	doorman    *coord.Server     // refuses clients while this member does not serve
	current    *coord.Server     // gets the connections
	leader     string            // the address of the member that leads, or ""
	referral   string            // the address to which this process refers clients while it is in no group
	candidates []Candidate
	dialErrs   map[string]error // of the latest attempts to connect to candidates
	status     Status
}

// New returns a Member that is in no group. It joins one when a leader asks it to, or when Found is called.
func New(opts Options) *Member {
	opts.Voters = cmp.Or(opts.Voters, 3)
	opts.Tick = cmp.Or(opts.Tick, 100*time.Millisecond)
	m := &Member{
		opts: opts, log: opts.Logger, done: make(chan struct{}), instance: rand.Text(), inbound: map[net.Conn]bool{},
		calls: make(chan func()), inbox: make(chan incoming, 64), waiting: map[replica.Ticket]func(error){},
		peers: map[string]*peer{}, addrs: map[replica.ID]string{}, snapshots: map[replica.ID]*snapshot{},
		newServer: coord.NewSharedServer, dialErrs: map[string]error{},
	}
	m.ticker = time.NewTicker(m.opts.Tick)
	m.ticker.Stop()
	m.setDoorman()
	m.running.Go(m.loop)
	return m
}

// ErrMember is the error of Found if this process is in a group already.
var ErrMember = errors.New("this process is in a group already")

// Found begins a new group with this process as its only member. It returns when this member serves clients. The caller
// must know that no other process has founded a group for the same store and that no earlier group still runs.
func (m *Member) Found() error {
	var begun chan struct{}
	err, ok := ask(m, func() error {
		if m.replica != nil {
			return ErrMember
		}
		err := m.become(1, rand.Text(), true)
		if err == nil {
			m.gone = false
			m.manager.note(m, 1, m.opts.Addr, func(error) {})
			if m.flush(); m.serving != nil {
				begun = m.serving.begun
			}
		}
		return err
	})
	switch {
	case !ok:
		return coord.ErrServerClosed
	case err != nil || begun == nil:
		return err
	}
	select {
	case <-begun:
		return nil
	case <-m.done:
		return coord.ErrServerClosed
	}
}

// Close ends this member at once, as a crash would. Call Leave first if the other members must go on without a pause.
func (m *Member) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.done)
	}
	for nc := range m.inbound {
		nc.Close()
	}
	m.mu.Unlock()
	m.running.Wait()
	return m.doorman.Close()
}

// setDoorman makes a server that refuses clients on behalf of the group.
func (m *Member) setDoorman() {
	opts := m.opts.Server
	opts.InstanceID, opts.Elsewhere, opts.OnMember = m.instance, m.elsewhere, m.onMember
	doorman := coord.NewServer(opts)
	m.mu.Lock()
	defer m.mu.Unlock()
	if former := m.doorman; former != nil {
		m.running.Go(func() { _ = former.Close() })
	}
	m.doorman, m.current = doorman, doorman
}

// call passes f to the loop, which calls it. After Close it does nothing.
func (m *Member) call(f func()) {
	select {
	case m.calls <- f:
	case <-m.done:
	}
}

// do passes f to the loop and returns when the loop has called it, or after Close.
func (m *Member) do(f func()) {
	ask(m, func() struct{} { f(); return struct{}{} })
}

// ask passes f to the loop and returns its result. ok is false after Close.
func ask[T any](m *Member, f func() T) (result T, ok bool) {
	results := make(chan T, 1)
	m.call(func() { results <- f() })
	select {
	case result = <-results:
		return result, true
	case <-m.done:
		return result, false
	}
}

// become makes this process the replica with that id.
func (m *Member) become(id replica.ID, instance string, founder bool) error {
	r, err := replica.New(replica.Config{
		ID: id, Founder: founder, HeartbeatTicks: 2, ElectionTicks: electionTicks,
		// Members tick at different moments, so that a few ticks are enough to keep most of them from campaigning at once.
		ElectionTimeout: func() int { return electionTicks + mathrand.N(electionTicks/2) }, MaxWrite: maxWrite,
	})
	if err != nil {
		return fmt.Errorf("join the store's group: %w", err)
	}
	if m.replica != nil {
		m.abandon(errors.New("it has joined anew"))
	}
	m.replica, m.id, m.instance = r, id, instance
	m.setReferral("")
	m.setDoorman()
	m.disconnect() // the others know this process by its former group
	m.ticked = false
	m.ticker.Reset(1 + mathrand.N(m.opts.Tick)) // members that tick at the same times split votes
	return nil
}

// abandon ends this process's membership.
func (m *Member) abandon(err error) {
	m.log.Debug().Err(err).Msg("this node has left the store's group")
	if m.serving != nil {
		m.stopServing()
	}
	for ticket, done := range m.waiting {
		delete(m.waiting, ticket)
		done(replica.ErrUnknown)
	}
	m.retry() // the server's requests fail now
	m.replica, m.manager, m.servedTerm = nil, manager{}, 0
	m.store()
	m.ticker.Stop()
	for _, left := range m.left {
		left <- nil
	}
	m.left = nil
	m.mu.Lock()
	m.leader = ""
	m.mu.Unlock()
	m.publish(Status{})
}

// loop owns the replica.
func (m *Member) loop() {
	for {
		select {
		case <-m.done:
			if m.replica != nil {
				m.abandon(coord.ErrServerClosed)
			}
			m.disconnect()
			return
		case f := <-m.calls:
			f()
		case in := <-m.inbox:
			m.handle(in)
		case <-m.ticker.C:
			m.tick()
		}
		m.flush()
	}
}

// tick handles the passing of time.
func (m *Member) tick() {
	if m.replica == nil {
		return // the tick was on its way when this process left its group
	}
	if !m.ticked {
		m.ticked = true
		m.ticker.Reset(m.opts.Tick)
	}
	m.watchSnapshots(m.replica.Status())
	m.replica.Tick()
	m.retry()
	if m.flush(); m.replica != nil {
		m.serveAgain()
	}
	if m.replica != nil {
		m.manage()
	}
}

// retry repeats the requests that the replica had no room for.
func (m *Member) retry() {
	retries := m.retries
	m.retries = nil
	for _, retry := range retries {
		retry()
	}
}

// handle handles a frame and the frames that wait behind it.
func (m *Member) handle(in incoming) {
	for range cap(m.inbox) {
		m.handleOne(in)
		select {
		case in = <-m.inbox:
		default:
			return
		}
	}
}

func (m *Member) handleOne(in incoming) {
	switch {
	case in.kind == frameAdopt:
		m.adopt(in)
	case in.kind == frameAnnounce, in.kind == frameRelay:
		m.handleAnnouncement(in)
	case in.kind == frameTakeOver:
		m.handleTakeOver(in)
	case in.kind == frameReach:
		m.handleReach(in)
	case m.replica == nil || in.from.instance != m.instance:
	case in.kind == frameLeave, in.kind == frameAsk:
		m.handleAsk(in)
	case in.kind == frameRemoved && in.id == m.id:
		m.abandon(errRemoved)
	case in.message.To() == m.id:
		m.addrs[in.message.From()] = in.from.addr
		if err := m.replica.Step(in.message); err != nil {
			m.log.Warn().Err(err).Str("member", in.from.addr).Msg("refused a message of a member of the store's group")
			in.refuse()
		}
		if in.message.From() == m.replica.Status().Leader {
			m.manager.heard, m.heardAt = m.manager.now, time.Now()
		}
	}
}

// adopt joins the group of a leader that has added this process.
func (m *Member) adopt(in incoming) {
	if m.gone && m.replica == nil || m.replica != nil && (m.instance != in.from.instance || in.id <= m.id) {
		return
	}
	if err := m.become(in.id, in.from.instance, false); err != nil {
		m.log.Error().Err(err).Msg("cannot join the store's group")
	}
}

// request makes a request of the replica; done receives the outcome.
func (m *Member) request(request func(*replica.Replica) (replica.Ticket, error), done func(error)) {
	ticket, err := request(m.replica)
	if err != nil {
		done(err)
		return
	}
	m.waiting[ticket] = done
}

// flush carries out the replica's output until there is no more.
func (m *Member) flush() {
	for again := true; again && m.replica != nil; {
		out := m.replica.Output()
		m.store()
		m.sendMessages(out.Messages)
		for _, result := range out.Settled {
			if done := m.waiting[result.Ticket]; done != nil {
				delete(m.waiting, result.Ticket)
				done(result.Err)
			}
		}
		again = len(out.Settled) > 0 // done functions may have made further requests
	}
	if m.replica == nil {
		return
	}
	if err := m.replica.Err(); err != nil {
		m.log.Error().Err(err).Msg("this node leaves the store's group")
		m.abandon(err)
		return
	}
	if m.setRole(); m.replica != nil {
		m.setStatus()
	}
}
