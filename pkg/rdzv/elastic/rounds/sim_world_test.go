package rounds

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// world simulates one job in one goroutine: its nodes, their workers, the network and the coordination store. The seed
// determines everything that happens.
type world struct {
	seed  uint64
	cfg   simConfig
	rng   *rand.Rand
	now   time.Duration
	queue simQueue
	seq   uint64

	store   *simStore // with groups, the newest server of the group that the checker looked at last
	groups  []*simGroup
	nodes   []*simNode
	rounds  map[simRoundID]*simRound
	check   *checker
	plant   planted
	barrier simBarrier
	preempt simPreempt

	wellSince     time.Duration // since when all nodes have been well; for nodes that fail one at a time
	hadBlocked    bool          // some nodes could not reach each other for a while
	calm          bool          // the faults are over: workers succeed and the network works
	ended         time.Duration
	tracing       bool
	values        []any       // the values of keys and sessions in the contents of groups
	writes        []*simWrite // to the replicas of all groups
	trace         []string
	events        int
	sessions      int
	nonces        int
	pids          int
	watchdogKills int // how often a guard killed workers in an agent's place
}

// simTimed is a scheduled event.
type simTimed struct {
	at  time.Duration
	seq uint64
	do  func()
}

// simQueue is a heap of events, the earliest on top.
type simQueue []simTimed

func (q simQueue) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *simQueue) push(e simTimed) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *simQueue) pop() simTimed {
	h := *q
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], simTimed{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(h) && h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// at schedules do for time t.
func (w *world) at(t time.Duration, do func()) {
	w.seq++
	w.queue.push(simTimed{max(t, w.now), w.seq, do})
}

// after schedules do for d from now.
func (w *world) after(d time.Duration, do func()) { w.at(w.now+d, do) }

// run executes the events up to that time. It ends early if an invariant is violated or stop returns true.
func (w *world) run(until time.Duration, stop func() bool) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.check.broken == nil && !stop() {
		e := w.queue.pop()
		w.now = e.at
		w.events++
		e.do()
	}
	if w.check.broken == nil && !stop() {
		w.now = until
	}
}

// chance returns true with probability p.
func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// between draws a duration from [lo, hi) evenly.
func (w *world) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)))
}

// logf adds a line to the trace.
func (w *world) logf(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%12.6f ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

// simClock is a machine's monotonic clock. It has any origin and runs up to 1 % fast or slow.
type simClock struct {
	origin time.Duration
	rate   float64
}

func (w *world) newClock() simClock {
	return simClock{w.between(0, 1e6*time.Second), 1 + (w.rng.Float64()-0.5)*0.02}
}

func (c simClock) read(now time.Duration) time.Duration {
	return c.origin + time.Duration(float64(now)*c.rate)
}

// when returns the time at which the clock shows at least local.
func (c simClock) when(local time.Duration) time.Duration {
	return time.Duration(float64(local-c.origin)/c.rate) + 2
}

// actor is something that can be paused: a process, or a node's workers.
type actor struct {
	w       *world
	frozen  bool
	until   time.Duration
	backlog []simDelayed
}

// simDelayed is work of a paused actor.
type simDelayed struct {
	timer bool
	do    func()
}

// do runs the function now, or once the actor resumes.
func (a *actor) do(timer bool, do func()) {
	if a.frozen {
		a.backlog = append(a.backlog, simDelayed{timer, do})
		return
	}
	do()
}

// timer schedules do as a timer of the actor.
func (a *actor) timer(at time.Duration, do func()) {
	a.w.at(at, func() { a.do(true, do) })
}

// freeze pauses the actor for d. Then its delayed work runs in order, but either all timers or all messages come first.
func (a *actor) freeze(d time.Duration) {
	if a.frozen {
		return
	}
	a.frozen, a.until = true, a.w.now+d
	a.w.after(d, a.thaw)
}

// thaw resumes the actor.
func (a *actor) thaw() {
	timersFirst := a.w.chance(0.5)
	a.frozen = false
	backlog := a.backlog
	a.backlog = nil
	for _, timers := range []bool{timersFirst, !timersFirst} {
		for _, h := range backlog {
			if h.timer == timers {
				a.do(h.timer, h.do)
			}
		}
	}
}

// simConn is a connection of an agent to the store.
type simConn struct {
	node       *simNode
	store      *simStore // nil until a process at peer has accepted the connection
	peer       *simNode  // the machine of the store; nil if the store is at no node
	broken     bool      // messages sent from now on are lost
	storeGone  bool      // the store has stopped reading it
	clientGone bool      // the agent has stopped reading it
	arrives    [2]time.Duration
	heard      time.Duration // when the agent last received something from the store
}

// The directions of a connection.
const (
	up   = 0 // to the store
	down = 1
)

// delay draws the latency of a message.
func (w *world) delay() time.Duration {
	if !w.calm && w.chance(w.cfg.spikes) {
		return w.between(5*time.Millisecond, 400*time.Millisecond)
	}
	return w.between(50*time.Microsecond, 3*time.Millisecond)
}

// send delivers messages over a connection in order. A cut link delays them, a broken connection loses them.
func (w *world) send(c *simConn, dir int, do func()) {
	if c.broken {
		return
	}
	at := max(c.arrives[dir], w.now+w.delay())
	c.arrives[dir] = at
	w.at(at, func() { w.arrive(c, dir, do) })
}

// sendAside delivers a message out of order.
func (w *world) sendAside(c *simConn, dir int, late time.Duration, do func()) {
	if !c.broken {
		w.at(w.now+late, func() { w.arrive(c, dir, do) })
	}
}

// arrive hands a message to its receiver.
func (w *world) arrive(c *simConn, dir int, do func()) {
	if n, cut := c.cutAt(dir); n != nil {
		n.held[cut] = append(n.held[cut], simMessage{c, dir, do})
		return
	}
	if dir == up {
		if c.store == nil {
			c.peer.agent.do(false, do)
		} else if c.store.up {
			c.store.actor.do(false, func() {
				if !c.storeGone {
					do()
				}
			})
		}
		return
	}
	c.node.agent.do(false, func() {
		if !c.clientGone {
			c.heard = w.now
			do()
		}
	})
}

// cutAt returns the machine whose link is cut, and in which direction, for messages of that direction.
func (c *simConn) cutAt(dir int) (n *simNode, cut int) {
	switch {
	case c.peer == c.node:
	case c.node.cut[dir]:
		return c.node, dir
	case c.peer != nil && c.peer.cut[1-dir]:
		return c.peer, 1 - dir
	}
	return nil, 0
}

// simMessage is a message that a cut link delays.
type simMessage struct {
	conn *simConn
	dir  int
	do   func()
}

// cutLink delays the messages in that direction for d.
func (w *world) cutLink(n *simNode, dir int, d time.Duration) {
	if n.cut[dir] {
		return
	}
	n.cut[dir] = true
	w.logf("%s link cut, direction %d, for %v", n.name, dir, d)
	w.after(d, func() { w.heal(n, dir) })
}

// heal ends a cut.
func (w *world) heal(n *simNode, dir int) {
	if !n.cut[dir] {
		return
	}
	n.cut[dir] = false
	w.logf("%s link healed, direction %d", n.name, dir)
	held := n.held[dir]
	n.held[dir] = nil
	at := w.now + w.between(time.Millisecond, 200*time.Millisecond)
	for _, m := range held {
		m.conn.arrives[m.dir] = max(m.conn.arrives[m.dir], at)
		w.at(at, func() { w.arrive(m.conn, m.dir, m.do) })
	}
}

// simNode is a machine.
type simNode struct {
	w               *world
	name            string
	node            Node
	job             Job
	clock           simClock
	agent           actor // the agent process
	guard           actor
	workers         actor
	cut             [2]bool
	held            [2][]simMessage
	proc            *agentProc
	outcome         *string       // the outcome that its agent has learned
	gone            bool          // no agent will be started any more
	launches        int           // number of launches it was in
	restartPending  bool          // an agent will be started
	thawed          time.Duration // when the last pause of the whole machine ends
	inboundBlocked  bool          // no node reaches its worker store
	outboundBlocked bool          // it reaches no other node's worker store
	blockedForGood  bool          // the block lasts for the whole run
	refusing        time.Duration // no new connection reaches the store until then
	unguardedUntil  time.Duration // workers may overlap until then: guard and agent are or were paused
	liveGroups      []*workerGroup
	place           simPlace
}

func (n *simNode) local() time.Duration { return n.clock.read(n.w.now) }
