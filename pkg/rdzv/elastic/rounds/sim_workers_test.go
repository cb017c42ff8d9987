package rounds

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// simRound is what the simulator knows of a round: the decision and what has really happened.
type simRound struct {
	caused   bool // a worker has failed by itself, even if its agent has not learned of it
	instance int  // instance of the store
	guarded  bool // no worker of an earlier store's round may run
	record   Record
	epoch    coord.Revision
	decided  time.Duration
	length   time.Duration  // how long the workers compute once all have started
	fails    int            // the rank of the node on which a worker fails by itself, or -1
	failsAt  time.Duration  // when it fails after the start; above length, it fails while the others exit
	groups   []*workerGroup // by rank, nil before they start
	forked   int
	broken   bool // a worker has not exited with 0
	started  bool

	ownAt     map[int]time.Duration
	own       map[int]rdzv.Failure // by rank: failures by themselves of which the agent has learned
	ready     map[coord.SessionID]bool
	ended     map[coord.SessionID]bool
	firstExit time.Duration
	exited    map[int]bool // by rank: all workers exited with 0
	forgiven  string       // why a failure need not be charged; empty for no reason
	grown     bool         // it was ended for newcomers
	accepted  map[coord.SessionID]bool
	use       simUse
}

// workerGroup is the workers of one node in one round.
type workerGroup struct {
	w        *world
	node     *simNode
	proc     *agentProc
	rd       *simRound
	round    int
	rank     int
	nonce    string
	phase    groupPhase
	stubborn bool // ignores SIGTERM
	stopped  bool // it was stopped, so its failures do not count
	failed   bool // a worker has failed
	killAt   time.Duration
	orphan   bool // its agent has died
	// orphanedInPause says that the agent died while its whole machine was paused.
	orphanedInPause bool
	byGuard         bool // the guard has killed it
	preempted       bool // its workers were ordered to save
	finished        bool // its workers were ordered to save, and had done all their work
	goneAt          time.Duration
	over            <-chan struct{}
}

type groupPhase int

const (
	forking   groupPhase = iota
	preparing            // the agent does nothing else until it has started the workers
	alive
	gone
)

// newGroup starts the workers of a round that the agent has accepted.
func newGroup(p *agentProc, a *Answer, instance int, over <-chan struct{}) *workerGroup {
	w := p.w
	rd := w.rounds[simRoundID{instance, a.Fence.Round}]
	g := &workerGroup{
		w: w, node: p.node, proc: p, rd: rd, round: a.Fence.Round, rank: a.Place.Rank, nonce: a.Place.Store.Nonce,
		over:     over,
		stubborn: w.chance(w.cfg.stubborn), killAt: -1,
	}
	g.reach(w.now)
	return g
}

// reach tries to reach the worker store until that succeeds or the round is over, then starts the workers.
func (g *workerGroup) reach(began time.Duration) {
	w := g.w
	switch {
	case g.phase != forking || g.proc.dead:
	case g.rank > 0 && !w.reaches(g.node, g.rd.record.Members[0].ID, g.nonce):
		g.proc.loopTimer(w.now+w.between(time.Millisecond, 3*time.Second), func() {
			if g.phase == forking && !g.proc.dead {
				w.logf("%s does not reach the worker store of round %d", g.node.name, g.round)
				w.check.forgive(g.node, "rank 0 was not reached")
				g.proc.m.StoreUnreached(time.Duration(float64(w.now-began)*g.node.clock.rate), "i/o timeout")
				g.proc.pump()
			}
			g.proc.loopTimer(w.now+time.Second, func() { g.reach(began) })
		})
	default:
		g.proc.m.StoreReached()
		g.node.agent.do(false, func() { w.after(0, g.proc.pump) })
		g.phase = preparing
		g.proc.loopTimer(w.now+w.between(5*time.Millisecond, 500*time.Millisecond), g.fork)
	}
}

// reaches reports whether a node reaches the worker store with the nonce, of the agent with that session.
func (w *world) reaches(from *simNode, id coord.SessionID, nonce string) bool {
	n := w.check.owner[id]
	p := n.proc
	return !from.outboundBlocked && !n.inboundBlocked && p != nil && p.session == id && p.offer.Nonce == nonce &&
		!n.agent.frozen
}

func (g *workerGroup) fork() {
	if g.phase != preparing || g.late() {
		return
	}
	g.phase = alive
	g.proc.m.Started(g.node.local())
	g.proc.receiveSoon()
	g.w.logf("%s workers of round %d start", g.node.name, g.round)
	g.w.check.workersStart(g)
	g.node.liveGroups = append(g.node.liveGroups, g)
	rd := g.rd
	rd.groups[g.rank] = g
	rd.forked++
	switch {
	case rd.broken:
		g.peerLost()
	case rd.forked == len(rd.groups):
		rd.begin(g.w)
	}
}

// begin lets the workers compute once all have started.
func (rd *simRound) begin(w *world) {
	rd.started, rd.use.began = true, w.now
	length := rd.length
	if w.calm {
		length = w.cfg.calmLength
	}
	for r, g := range rd.groups {
		exit := length + w.between(0, 300*time.Millisecond) + w.barrier.straggler()
		if r == rd.fails {
			g.node.workers.timer(w.now+rd.failsAt, g.failByItself)
			exit = rd.failsAt + time.Hour
		}
		g.node.workers.timer(w.now+exit, g.succeed)
	}
}

func (g *workerGroup) succeed() {
	if g.phase != alive || g.stopped || g.failed || g.rd.broken {
		return
	}
	if len(g.rd.exited) == 0 {
		g.rd.firstExit = g.w.now
	}
	g.rd.exited[g.rank], g.rd.use.exited[g.rank] = true, g.w.now
	if g.w.barrier.closes && len(g.rd.exited) == len(g.rd.groups) {
		g.w.requestCloseSoon()
	}
	g.finish(true)
}

func (g *workerGroup) failByItself() {
	if g.phase == alive && !g.stopped && !g.failed {
		g.w.logf("%s a worker of round %d fails by itself", g.node.name, g.round)
		g.fail(1)
	}
}

// peerLost makes a worker fail because a peer on another node is gone. Sometimes it does nothing: the worker hangs.
func (g *workerGroup) peerLost() {
	if g.w.chance(g.w.cfg.victims) {
		g.node.workers.timer(g.w.now+g.w.between(0, 500*time.Millisecond), func() {
			if g.phase == alive && !g.stopped && !g.failed {
				g.fail(failure.GradePeer)
			}
		})
	}
}

// fail makes the first worker of the group fail. The others live until the agent stops them.
func (g *workerGroup) fail(grade int) {
	g.failed = true
	g.rd.interrupted(g.w.now)
	g.rd.caused = g.rd.caused || grade == 1
	at, p := g.node.local(), g.proc
	f := rdzv.Failure{Failure: failure.Failure{Host: g.node.name, GlobalRank: g.rank, ExitCode: 1}, Grade: grade}
	g.breakPeers()
	p.onLoop(func() {
		if g.phase != alive || p.dead || g.stopped {
			return
		}
		f.Age = g.node.local() - at
		if grade == 1 && p.group == g {
			g.rd.own[g.rank], g.rd.ownAt[g.rank] = f, g.w.now
		}
		p.workerFailed(g, f)
	})
}

// breakPeers makes the peers on other nodes notice the loss of a worker.
func (g *workerGroup) breakPeers() {
	g.rd.broken = true
	for _, other := range g.rd.groups {
		if other != nil && other != g && other.phase == alive {
			other.peerLost()
		}
	}
}

// stop sends SIGTERM, and SIGKILL after the grace period, or after killIn if that is shorter and not below 0.
func (g *workerGroup) stop(killIn time.Duration) {
	if g.w.plant.noBound {
		killIn = -1
	}
	w, grace := g.w, g.w.cfg.grace
	if killIn >= 0 {
		grace = min(grace, time.Duration(float64(killIn)/g.node.clock.rate))
	}
	killAt := w.now + grace
	if g.phase < alive {
		g.finish(false)
		return
	}
	g.rd.interrupted(w.now)
	if g.killAt < 0 || killAt < g.killAt {
		g.killAt = killAt
		g.proc.loopTimer(killAt, func() {
			if !g.orphan && g.killAt <= w.now {
				g.kill()
			}
		})
	}
	if !g.stopped {
		g.stopped = true
		if !g.stubborn {
			g.node.workers.timer(w.now+w.between(0, w.cfg.grace), func() { g.finish(false) })
		}
	}
}

// kill sends SIGKILL.
func (g *workerGroup) kill() {
	switch g.phase {
	case forking, preparing:
		g.finish(false)
	case alive:
		g.stopped = true
		g.w.after(g.w.between(0, 5*time.Millisecond), func() { g.finish(false) })
	case gone:
	}
}

// finish handles the end of the last worker.
func (g *workerGroup) finish(ok bool) {
	if g.phase == gone {
		return
	}
	was := g.phase
	g.phase, g.goneAt = gone, g.w.now
	n := g.node
	n.liveGroups = slices.DeleteFunc(n.liveGroups, func(x *workerGroup) bool { return x == g })
	if was == alive && !ok {
		g.rd.interrupted(g.w.now)
		g.breakPeers()
	}
	if was == alive {
		g.w.logf("%s workers of round %d are gone, success %v", n.name, g.round, ok)
	}
	p := g.proc
	p.onLoop(func() {
		if g.byGuard && p.group == g {
			p.killedByGuard(g)
		}
		p.workersEnded(g, ok)
	})
}

// plan draws how a round will go, when it is decided.
func (w *world) plan(rec Record, epoch coord.Revision) *simRound {
	rd := &simRound{
		record: rec, epoch: epoch, decided: w.now, fails: -1, groups: make([]*workerGroup, len(rec.Members)),
		own: map[int]rdzv.Failure{}, ownAt: map[int]time.Duration{}, ready: map[coord.SessionID]bool{},
		ended: map[coord.SessionID]bool{}, exited: map[int]bool{},
		accepted: map[coord.SessionID]bool{}, use: simUse{exited: map[int]time.Duration{}},
	}
	if w.calm {
		rd.length = w.cfg.calmLength
		return rd
	}
	rd.length = w.between(500*time.Millisecond, w.cfg.length)
	if w.chance(w.cfg.failures) {
		rd.fails = w.rng.IntN(len(rec.Members))
		if rd.failsAt = w.between(0, rd.length); w.chance(0.4) {
			rd.failsAt = rd.length + w.between(0, 300*time.Millisecond) // while the others exit
		}
	} else if !w.chance(w.cfg.success) {
		rd.length = w.cfg.faults
	}
	return rd
}
