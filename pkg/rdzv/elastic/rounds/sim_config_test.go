package rounds

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// simConfig is drawn from the seed before anything happens.
type simConfig struct {
	profile      string
	etcd         bool // the agents elect the leader; otherwise it runs in the store's process
	group        bool // the agents keep the store together
	voters       int  // with group: how many voters there are at most
	memory       bool // the store loses everything when its process ends
	nodes        int
	job          Job
	ttl          time.Duration
	grace        time.Duration // grace period of the workers
	gather       time.Duration // how long the store batches changes
	merges       bool          // a watch delivers only the last of several changes
	encode       bool          // values are encoded and decoded
	spikes       float64       // probability of a slow message
	resyncs      float64       // of a gap in a watch
	stuck        float64       // of a commit that others overtake
	giveUp       time.Duration // when an agent abandons a commit
	stubborn     float64       // of workers that ignore SIGTERM
	victims      float64       // of workers that fail when a peer is lost; others hang
	failures     float64       // of rounds in which a worker fails by itself
	slowEnter    float64       // of an agent that takes long to enter
	success      float64       // of a round without a failure that ends before the faults do
	length       time.Duration // of rounds
	calmLength   time.Duration
	restartDelay time.Duration
	faults       time.Duration // how long faults happen
	joins        time.Duration // in which the nodes join
	gap          time.Duration // between faults; 0 for no faults
	straggle     time.Duration // how much later than the others the workers of a node may exit
	launches     int           // with one run id; a node that has learned the end of one starts the next
	kinds        []fault
}

// simProfiles are the kinds of runs. A seed determines its profile.
var simProfiles = []string{
	"calm", "failures", "churn", "partitions", "leader", "store", "everything", "frozen agents",
	"worker stores", "hung agents", "lost stores",
}

// newWorld returns the world of a seed.
func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), rounds: map[simRoundID]*simRound{}, barrier: newSimBarrier(seed),
		preempt: newSimPreempt(seed),
	}
	w.check = newChecker(w)
	c := &w.cfg
	sec, ms := time.Second, time.Millisecond
	c.straggle = w.barrier.straggle
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
	c.restartDelay = w.between(200*ms, 5*sec)
	c.joins = w.between(0, 6*sec)
	c.faults = w.between(20*sec, 250*sec)
	c.stubborn, c.victims = 0.6*w.rng.Float64(), 0.9
	c.job = Job{
		Version: "1", TTL: c.ttl, MaxRestarts: w.rng.IntN(1 + w.rng.IntN(15)), JoinTimeout: w.between(15*sec, 40*sec),
		LastCall:   w.between(100*ms, 4*sec),
		JoinSettle: w.between(0, sec), Rejoin: 2*c.ttl + w.between(0, 5*sec), MinUptime: w.between(0, 3*sec),
		Grow: []Grow{GrowNow, GrowNow, GrowNow, GrowNextRestart, GrowNever}[w.rng.IntN(5)], ResultTTL: 600 * sec,
	}
	c.job.Min = 1 + w.rng.IntN((c.nodes+1)/2)
	c.job.Max = c.job.Min + w.rng.IntN(c.nodes-c.job.Min+2)
	// This has a generator of its own, so that worlds without a multiple do not depend on it.
	if rng := rand.New(rand.NewPCG(seed, 20)); rng.Float64() < 0.2 {
		c.job.Multiple = 2 + rng.IntN(2)
		c.job.Min = c.job.roundSize(c.job.Min + c.job.Multiple - 1)
		c.job.Max = max(c.job.Min, c.job.roundSize(c.job.Max))
	}
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
		c.job.Multiple = 0
	}
	if c.launches = 1; w.chance(0.3) {
		c.launches = 2 + w.rng.IntN(2)
	}
	c.job.PreemptGrace = w.preempt.grace
	w.drawFaults()
	w.store = w.newStore()
	if c.memory {
		w.store.fresh.createdAt = OptionalTime{w.store.clock.read(0), true}
	}
	for i := range c.nodes {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	if c.profile == "worker stores" && !c.job.Static && w.chance(0.6) {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.blockedForGood, n.inboundBlocked = true, w.chance(0.5)
		n.outboundBlocked = !n.inboundBlocked
	}
	return w
}

// newNode returns a node that no agent has been started on.
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
		n.job.LastCall++ // the leader refuses it
	}
	if w.cfg.job.Static {
		n.node.Hint = w.cfg.nodes - 1 - i
	}
	return n
}

// drawFaults draws the faults that the profile allows.
func (w *world) drawFaults() {
	c := &w.cfg
	ms, sec := time.Millisecond, time.Second
	agents := []fault{
		{"kill", kill},
		{"kill", kill},
		{"power", losePower},
		{"kill both", killBoth},
		{"term", terminateAgent},
		{"twin", startDuplicate},
	}
	network := []fault{
		{"cut", cut},
		{"cut", cut},
		{"half cut", halfCut},
		{"reset", reset},
		{"one-sided reset", resetOneSide},
		{"proxy", proxyDies},
		{"flap", flap},
		{"flap", flap},
	}
	frozen := []fault{
		{"freeze node", freezeNode},
		{"freeze agent", freezeAgent},
		{"freeze guard", freezeGuard},
		{"hang", hang},
	}
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
		c.kinds, c.gap = []fault{
			{"kill leader", killLeader},
			{"cut leader", cutLeader},
			{"flap", flap},
			{"kill", kill},
			{"power", losePower},
		}, w.between(300*ms, 4*sec)
	case "store":
		c.kinds, c.gap = append(store, fault{"kill", kill}, fault{"power", losePower}, fault{"flap", flap}),
			w.between(500*ms, 6*sec)
	case "everything":
		c.kinds, c.gap = append(append(append(network, agents...), frozen...), store...), w.between(200*ms, 3*sec)
		c.kinds = append(c.kinds, fault{"deafen", blockInbound}, fault{"mute", blockOutbound})
	case "worker stores":
		if c.kinds, c.gap = []fault{{"kill", kill}, {"power", losePower}}, w.between(2*sec, 20*sec); w.chance(0.5) {
			c.kinds = append(c.kinds, fault{"deafen", blockInbound}, fault{"mute", blockOutbound})
		}
	case "frozen agents":
		c.kinds, c.gap = []fault{
			{"freeze agent", freezeAgent},
			{"freeze agent", freezeAgent},
			{"freeze node", freezeNode},
			{"freeze guard", freezeGuard},
			{"kill", kill},
		}, w.between(sec, 6*sec)
	case "hung agents":
		c.kinds, c.gap = []fault{{"hang", hang}, {"hang", hang}, {"hang", hang}, {"kill", kill}},
			w.between(2*sec, 10*sec)
	case "lost stores":
		c.kinds, c.gap = []fault{
			{"replace store", replaceStore},
			{"cut", cut},
			{"cut", cut},
			{"kill", kill},
			{"freeze agent", freezeAgent},
		}, w.between(sec, 6*sec)
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

// recoveryBound returns how long a job may take to end once no more faults happen.
func (c *simConfig) recoveryBound() time.Duration {
	launch := c.straggle + c.job.JoinTimeout + 8*c.job.Rejoin + c.job.LastCall + 6*c.ttl + 2*c.restartDelay + c.calmLength
	return time.Duration(c.launches) * (launch + 30*time.Second)
}
