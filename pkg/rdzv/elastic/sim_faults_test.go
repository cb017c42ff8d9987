package elastic

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// simConfig is what a seed draws before anything happens.
type simConfig struct {
	profile    string
	etcd       bool // the agents elect the leader; else it is in the store's process
	memory     bool // the store loses everything when its process ends
	nodes      int
	job        Job
	ttl        time.Duration
	grace      time.Duration // that workers have to stop
	gather     time.Duration // for which the store gathers changes
	merges     bool          // a watch sees the last of several changes only
	encode     bool          // values are encoded and decoded
	spikes     float64       // probability of a slow message
	resyncs    float64       // of a gap in a watch
	stuck      float64       // of a commit that others overtake
	giveUp     time.Duration // after which a commit is given up
	stubborn   float64       // of workers that ignore SIGTERM
	victims    float64       // that workers fail when their peers are gone
	failures   float64       // of rounds in which a worker fails by itself
	slowEnter  float64
	success    float64       // that a round without a failure comes to its end before the faults do
	length     time.Duration // of rounds
	calmLength time.Duration
	comeBack   time.Duration
	faults     time.Duration // how long they go on
	joins      time.Duration // in which the nodes come
	gap        time.Duration // between faults; 0: there are none
	launches   int           // one after the other, with one run id: a node that has learned how one ended is in the next
	kinds      []fault
}

// fault is one thing that can go wrong.
type fault struct {
	name string
	do   func(w *world)
}

var simProfiles = []string{"calm", "failures", "churn", "partitions", "leader", "store", "everything", "frozen agents", "worker stores", "hung agents", "lost stores"}

// draw makes a world of a seed.
func draw(seed uint64) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), rounds: map[simRoundID]*simRound{}}
	w.check = newChecker(w)
	c := &w.cfg
	sec, ms := time.Second, time.Millisecond
	c.profile = simProfiles[seed%uint64(len(simProfiles))]
	c.etcd = w.chance(0.5)
	c.memory = w.chance(0.5)
	c.nodes = 2 + w.rng.IntN(6)
	if w.chance(0.01) {
		c.nodes = 20 + w.rng.IntN(21)
	}
	if c.ttl = w.between(2*sec, 5*sec); w.chance(0.3) {
		c.ttl = w.between(5*sec, 15*sec)
	}
	if c.grace = w.between(200*ms, 3*sec); w.chance(0.4) {
		c.grace = w.between(3*sec, 20*sec)
	}
	c.gather = w.between(0, 5*ms)
	c.merges = !c.etcd || w.chance(0.5)
	c.encode = seed%16 == 0
	c.giveUp = sec
	c.length = w.between(2*sec, 12*sec)
	c.calmLength = w.between(sec, 4*sec)
	c.comeBack = w.between(200*ms, 5*sec)
	c.joins = w.between(0, 6*sec)
	c.faults = w.between(20*sec, 250*sec)
	c.stubborn, c.victims = 0.6*w.rng.Float64(), 0.9
	c.job = Job{
		Version: "1", TTL: c.ttl, MaxRestarts: w.rng.IntN(1 + w.rng.IntN(15)), JoinTimeout: w.between(15*sec, 40*sec), LastCall: w.between(100*ms, 4*sec),
		JoinSettle: w.between(0, sec), Rejoin: 2*c.ttl + w.between(0, 5*sec), MinUptime: w.between(0, 3*sec),
		Grow: []Grow{GrowNow, GrowNow, GrowNow, GrowNextRestart, GrowNever}[w.rng.IntN(5)], ResultTTL: 600 * sec,
	}
	c.job.Min = 1 + w.rng.IntN((c.nodes+1)/2)
	c.job.Max = c.job.Min + w.rng.IntN(c.nodes-c.job.Min+2)
	if w.chance(0.3) {
		c.job.Expected = c.job.Min + w.rng.IntN(c.job.Max-c.job.Min+1)
	}
	if w.chance(0.3) {
		c.job.RestartWindow = w.between(10*sec, 60*sec)
	}
	if w.chance(0.3) {
		c.job.MaxNodeLosses = 3 + w.rng.IntN(2)
	}
	if w.chance(0.08) {
		c.job.Static, c.job.Min, c.job.Max, c.job.Expected = true, c.nodes, c.nodes, 0
	}
	if c.launches = 1; w.chance(0.3) {
		c.launches = 2 + w.rng.IntN(2)
	}
	w.drawFaults()
	w.store = w.newStore()
	if c.memory {
		w.store.fresh.createdAt = optionalTime{w.store.clock.read(0), true}
	}
	for i := range c.nodes {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	if c.profile == "worker stores" && !c.job.Static && w.chance(0.6) {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.sick, n.deaf = true, w.chance(0.5)
		n.mute = !n.deaf
	}
	return w
}

func (w *world) newNode(i int) *simNode {
	n := &simNode{w: w, name: fmt.Sprint("node", i), clock: w.newClock(), job: w.cfg.job, thawed: -time.Hour}
	n.agent.w, n.guard.w, n.workers.w = w, w, w
	n.node = Node{
		Host: n.name, Identity: fmt.Sprint("id", i), Hint: -1, Role: "trainer", Nproc: 1 + w.rng.IntN(4),
	}
	n.nextLaunch()
	if w.chance(0.2) {
		n.node.Role = "reader"
	}
	if i > 0 && w.cfg.gap > 0 && w.chance(0.02) {
		n.job.LastCall++ // it does not fit
	}
	if w.cfg.job.Static {
		n.node.Hint = w.cfg.nodes - 1 - i
	}
	return n
}

func (w *world) drawFaults() {
	c := &w.cfg
	ms, sec := time.Millisecond, time.Second
	agents := []fault{{"kill", kill}, {"kill", kill}, {"power", power}, {"kill both", killBoth}, {"term", term9}, {"twin", twin}}
	network := []fault{{"cut", cut}, {"cut", cut}, {"half cut", halfCut}, {"reset", reset}, {"one-sided reset", resetOneSide}, {"proxy", proxyDies}, {"flap", flap}, {"flap", flap}}
	frozen := []fault{{"freeze node", freezeNode}, {"freeze agent", freezeAgent}, {"freeze guard", freezeGuard}, {"hang", hang}}
	store := []fault{{"freeze store", freezeStore}}
	if c.profile == "leader" {
		c.etcd = true
	}
	if c.profile == "lost stores" {
		c.etcd, c.memory = false, true
	}
	switch c.memory = c.memory && !c.etcd; {
	case c.memory:
		store = append(store, fault{"replace store", replaceStore})
	case !c.etcd:
		store = append(store, fault{"restart store", restartStore})
	}
	switch c.profile {
	case "calm":
		return
	case "failures":
	case "churn":
		c.kinds, c.gap = agents, w.between(200*ms, 4*sec)
	case "partitions":
		c.kinds, c.gap = network, w.between(200*ms, 3*sec)
	case "leader":
		c.kinds, c.gap = []fault{{"kill leader", killLeader}, {"cut leader", cutLeader}, {"flap", flap}, {"kill", kill}, {"power", power}}, w.between(300*ms, 4*sec)
	case "store":
		c.kinds, c.gap = append(store, fault{"kill", kill}, fault{"power", power}, fault{"flap", flap}), w.between(500*ms, 6*sec)
	case "everything":
		c.kinds, c.gap = append(append(append(network, agents...), frozen...), store...), w.between(200*ms, 3*sec)
		c.kinds = append(c.kinds, fault{"deafen", deafen}, fault{"mute", mute})
	case "worker stores":
		if c.kinds, c.gap = []fault{{"kill", kill}, {"power", power}}, w.between(2*sec, 20*sec); w.chance(0.5) {
			c.kinds = append(c.kinds, fault{"deafen", deafen}, fault{"mute", mute})
		}
	case "frozen agents":
		c.kinds, c.gap = []fault{{"freeze agent", freezeAgent}, {"freeze agent", freezeAgent}, {"freeze node", freezeNode}, {"freeze guard", freezeGuard}, {"kill", kill}}, w.between(sec, 6*sec)
	case "hung agents":
		c.kinds, c.gap = []fault{{"hang", hang}, {"hang", hang}, {"hang", hang}, {"kill", kill}}, w.between(2*sec, 10*sec)
	case "lost stores":
		c.kinds, c.gap = []fault{{"replace store", replaceStore}, {"cut", cut}, {"cut", cut}, {"kill", kill}, {"freeze agent", freezeAgent}}, w.between(sec, 6*sec)
	}
	c.success = 0.04
	c.failures, c.slowEnter = 0.6*w.rng.Float64(), 0.05*w.rng.Float64()
	c.spikes, c.resyncs = 0.05*w.rng.Float64(), 0.02*w.rng.Float64()
	if c.etcd && w.chance(0.5) {
		c.stuck = 0.3 * w.rng.Float64()
	}
	if c.profile == "everything" && w.chance(0.1) {
		c.kinds = append(c.kinds, fault{"close", closeJob})
	}
}

// patient is a bound on how long a job takes to get going, or to end, once nothing more goes wrong.
func (c *simConfig) patient() time.Duration {
	return time.Duration(c.launches) * (c.job.JoinTimeout + 8*c.job.Rejoin + c.job.LastCall + 6*c.ttl + 2*c.comeBack + c.calmLength + 30*time.Second)
}

// live runs a seed to its end.
func (w *world) live() {
	c := &w.cfg
	if !c.etcd {
		w.store.lead()
	}
	for _, n := range w.nodes {
		n.comeBack(w.between(0, c.joins))
	}
	if c.gap > 0 {
		w.nextFault()
	}
	w.run(c.faults, w.allEnded)
	w.calmDown()
	w.run(c.faults+c.patient(), w.allEnded)
	if w.check.broken == nil && !w.allEnded() {
		w.check.fail("liveness", "%v after the last fault the job has not ended: %s", c.patient(), w.standing())
	}
	w.ended = w.now
	w.tidy()
}

// tidy checks what is left once everybody has gone.
func (w *world) tidy() {
	if w.check.broken != nil {
		return
	}
	w.run(max(w.now, w.store.actor.until)+2*w.cfg.ttl, func() bool { return false })
	for _, ses := range w.store.sorted() {
		w.check.checkCounts(ses.id)
	}
	if l := w.store.term; l != nil && w.check.outcome != nil && !l.l.acknowledged() {
		w.check.fail("liveness", "the leader does not know that everybody has gone: %v", l.l.participants.sessionIDs())
	}
	if left := w.store.list(prefixAnswer); w.store.term != nil && len(left) > 0 && w.store.restarts == 0 {
		w.check.fail("tidy", "%d answers are left, the first is %s", len(left), left[0].key)
	}
}

func (w *world) nextFault() {
	w.after(w.between(0, 2*w.cfg.gap), func() {
		if !w.calm {
			w.check.faults++
			w.cfg.kinds[w.rng.IntN(len(w.cfg.kinds))].do(w)
			w.nextFault()
		}
	})
}

// calmDown heals everything.
func (w *world) calmDown() {
	w.logf("--- calm")
	w.calm = true
	if rd := w.check.current; rd != nil && rd.started {
		for _, g := range rd.groups {
			g.node.workers.timer(w.now+w.cfg.calmLength+w.between(0, 300*time.Millisecond), g.succeed)
		}
	}
	for _, n := range w.nodes {
		w.heal(n, up)
		w.heal(n, down)
		n.refusing = 0
		if !n.sick {
			n.deaf, n.mute = false, false
		}
		if n.proc == nil {
			n.comeBack(w.between(0, w.cfg.comeBack))
		}
	}
}

func (w *world) allEnded() bool {
	for _, n := range w.nodes {
		if !n.gone {
			return false
		}
	}
	return true
}

// standing says who waits for what.
func (w *world) standing() string {
	var b strings.Builder
	for _, n := range w.nodes {
		switch p := n.proc; {
		case n.gone:
			fmt.Fprintf(&b, " %s gone;", n.name)
		case p == nil || p.m == nil:
			fmt.Fprintf(&b, " %s not there;", n.name)
		default:
			fmt.Fprintf(&b, " %s %s state %d round %d answer %s %v workers %v;", n.name, p.session, p.m.state, p.m.round(), p.m.latest.Kind, p.m.latest.Fence, p.job != nil)
		}
	}
	return b.String()
}

// victim draws a node whose agent lives.
func (w *world) victim() *simNode {
	for range 8 {
		if n := w.nodes[w.rng.IntN(len(w.nodes))]; n.proc != nil {
			return n
		}
	}
	return nil
}

// outage draws how long a fault lasts: mostly short, sometimes longer than any lease.
func (w *world) outage() time.Duration {
	if w.chance(0.5) {
		return w.between(10*time.Millisecond, time.Second)
	}
	return w.between(time.Second, 3*w.cfg.ttl)
}

// twin starts an agent with the identity of one that may be alive, on another machine.
func twin(w *world) {
	n := w.victim()
	if n == nil || len(w.nodes) >= 2*w.cfg.nodes || w.cfg.job.Static && w.chance(0.5) {
		return
	}
	other := w.newNode(len(w.nodes))
	other.node.Identity, other.node.Hint = n.node.Identity, n.node.Hint
	w.logf("%s comes with the identity of %s", other.name, n.name)
	w.nodes = append(w.nodes, other)
	w.check.trouble(n, "replaced")
	other.start()
}

func kill(w *world) {
	if n := w.victim(); n != nil {
		w.kill(n)
	}
}

func (w *world) kill(n *simNode) {
	p := n.proc
	w.logf("%s agent %d is killed", n.name, p.pid)
	w.check.trouble(n, "killed")
	sweep := 50 * time.Millisecond
	if !w.calm && w.chance(0.1) { // something hangs in the kernel for a while
		sweep = w.cfg.ttl / 8
	}
	notice := func() { n.guard.do(false, func() { n.noticeExit(p.session) }) }
	if w.plant.earlyNotice {
		notice()
		notice = func() {}
	}
	p.orphan(sweep, notice)
	p.die()
	n.comeBack(w.between(50*time.Millisecond, w.cfg.comeBack))
}

// noticeExit is what the guard does once it has reaped the last process of a job whose agent has died: it tries for a while to
// end the agent's session.
func (n *simNode) noticeExit(id coord.SessionID) {
	w := n.w
	until := w.now + 3*time.Second
	var try func()
	try = func() {
		c := &simConn{node: n}
		c.broken = w.now < n.refusing
		w.send(c, up, func() {
			if ses := w.store.sessions[id]; ses != nil {
				w.store.end(ses, "its node's guard has seen its end")
			}
		})
		if w.now < until {
			w.after(w.between(100*time.Millisecond, time.Second), try)
		}
	}
	if id != "" {
		try()
	}
}

// orphan lets the workers of an agent that dies go with it, then calls done.
func (p *agentProc) orphan(within time.Duration, done func()) {
	if g := p.job; g != nil {
		g.orphan = true
		if g.phase < alive {
			g.phase = gone
		} else {
			g.stopped = true
			p.w.after(p.w.between(0, within), func() {
				g.finish(false)
				done()
			})
			return
		}
	}
	done()
}

func power(w *world) {
	n := w.victim()
	if n == nil {
		return
	}
	w.logf("%s loses power", n.name)
	w.check.trouble(n, "power")
	n.proc.orphan(0, func() {})
	n.proc.die()
	n.comeBack(w.between(time.Second, 4*w.cfg.ttl))
}

func term9(w *world) {
	if n := w.victim(); n != nil {
		w.check.trouble(n, "term")
		p := n.proc
		p.onLoop(p.terminate)
	}
}

// deafen lets nobody reach the worker stores of a node.
func deafen(w *world) {
	if n := w.victim(); n != nil && !n.deaf {
		d := w.between(time.Second, 3*w.cfg.job.Rejoin)
		w.logf("nobody reaches the worker stores of %s for %v", n.name, d)
		n.deaf, w.wavers = true, true
		w.after(d, func() { n.deaf = n.sick && n.deaf })
	}
}

// mute lets a node reach no worker store.
func mute(w *world) {
	if n := w.victim(); n != nil && !n.mute {
		d := w.between(time.Second, 3*w.cfg.job.Rejoin)
		w.logf("%s reaches no worker store for %v", n.name, d)
		n.mute, w.wavers = true, true
		w.after(d, func() { n.mute = n.sick && n.mute })
	}
}

func closeJob(w *world) {
	if n := w.victim(); n != nil {
		p := n.proc
		n.agent.do(false, func() {
			if !p.dead && p.m != nil {
				p.m.close()
				p.pump()
			}
		})
	}
}

func freezeNode(w *world) {
	if n := w.victim(); n != nil && !n.agent.frozen {
		d := w.outage()
		w.logf("%s stands still for %v", n.name, d)
		w.check.trouble(n, "frozen")
		n.thawed = w.now + d
		n.workers.freeze(d)
		if w.chance(0.5) {
			n.agent.freeze(d)
			n.guard.freeze(d)
		} else {
			n.guard.freeze(d)
			n.agent.freeze(d)
		}
		w.after(d+thawGrace, func() { w.check.thawed(n) })
	}
}

func freezeAgent(w *world) {
	if n := w.victim(); n != nil {
		freezeAgentOf(n)
	}
}

func freezeAgentOf(n *simNode) {
	if w := n.w; !n.agent.frozen {
		d := w.outage()
		w.logf("the agent of %s stands still for %v", n.name, d)
		w.check.trouble(n, "frozen")
		n.agent.freeze(d)
		n.unguarded()
		w.after(d-1, func() { n.unguarded() })
	}
}

func freezeStore(w *world) {
	s := w.store
	if s.actor.frozen || !s.up {
		return
	}
	d := w.outage()
	w.logf("the store stands still for %v", d)
	w.check.trouble(nil, "store frozen")
	before := s.clock.read(w.now)
	w.after(d, func() { s.skipped += s.clock.read(w.now) - before }) // before the thaw
	s.actor.freeze(d)
}

func restartStore(w *world) {
	if w.store.goDown() {
		w.after(w.between(20*time.Millisecond, w.cfg.ttl), w.store.restart)
	}
}

// goDown ends the store's process.
func (s *simStore) goDown() bool {
	w := s.w
	if s.actor.frozen || !s.up {
		return false
	}
	w.logf("the store is down")
	w.check.trouble(nil, "store down")
	s.up = false
	s.term.over = true
	for _, ses := range s.sorted() {
		c, n := ses.conn, ses.node
		if c == nil {
			continue
		}
		c.broken, c.storeGone = true, true
		if p := n.proc; p != nil && !n.cut[down] {
			w.after(w.between(0, 150*time.Millisecond), func() { n.agent.do(false, func() { p.connBroke(c) }) })
		}
	}
	return true
}

// restart begins the store's process anew, with what was on its disk.
func (s *simStore) restart() {
	s.w.logf("the store is back")
	s.up = true
	s.restarts++
	for _, x := range s.watches {
		x.session, x.flush = nil, false
	}
	s.watches = nil
	s.rev++
	delete(s.keys, keyLeader)
	for _, ses := range s.sorted() {
		if ses.node == nil {
			ses.ended = true
			delete(s.sessions, ses.id)
			continue
		}
		ses.conn, ses.due = nil, false
		s.keepAlive(ses)
	}
	s.lead()
}

func killLeader(w *world) {
	if n := w.leading(); n != nil {
		w.kill(n)
	}
}

func cutLeader(w *world) {
	if n := w.leading(); n != nil {
		w.check.trouble(n, "cut")
		d := w.outage()
		w.cutLink(n, up, d)
		w.cutLink(n, down, d)
	}
}

// leading is the node whose agent leads.
func (w *world) leading() *simNode {
	for _, n := range w.nodes {
		if p := n.proc; p != nil && p.cand != nil && p.cand.term != nil {
			return n
		}
	}
	return w.victim()
}
