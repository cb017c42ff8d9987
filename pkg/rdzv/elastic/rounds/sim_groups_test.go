package rounds

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// newGroupWorld returns a world in which the agents keep their store together.
func newGroupWorld(seed uint64) *world {
	w := newWorld(seed*uint64(len(simProfiles)) + 3)
	w.seed = seed
	c := &w.cfg
	c.voters = 3
	c.group, c.etcd, c.memory, c.launches, c.job.Static, c.job.Expected = true, false, false, 1, false, 0
	c.profile = simGroupProfiles[seed%uint64(len(simGroupProfiles))]
	c.nodes = 2 + w.rng.IntN(5)
	c.job.Min = 1 + w.rng.IntN(c.nodes)
	c.job.Max = max(3, c.nodes)
	c.job.Multiple = 0
	c.faults = w.between(20*time.Second, 100*time.Second)
	w.drawGroupFaults()
	w.store.up, w.store.fresh = false, StoreHistory{}
	w.nodes = nil
	for i := range c.nodes {
		w.nodes = append(w.nodes, w.newNode(i))
		w.nodes[i].job = c.job
	}
	return w
}

var simGroupProfiles = []string{"one at a time", "members", "network", "everything"}

func (w *world) drawGroupFaults() {
	c := &w.cfg
	ms, sec := time.Millisecond, time.Second
	server := []fault{{"kill server", killServer}, {"freeze server", freezeServer}, {"cut server", cutServer}}
	ends := []fault{{"kill", kill}, {"power", losePower}, {"term", terminateAgent}, {"kill both", killBoth}, {"kill many", killMany}}
	network := []fault{
		{"cut", cut},
		{"half cut", halfCut},
		{"reset", reset},
		{"flap", flap},
		{"cut server", cutServer},
	}
	frozen := []fault{{"freeze node", freezeNode}, {"freeze agent", freezeAgent}, {"freeze guard", freezeGuard}}
	c.success, c.failures, c.slowEnter, c.stuck = 0.02, 0.3*w.rng.Float64(), 0.02*w.rng.Float64(), 0
	c.victims = w.rng.Float64() // others hang
	c.spikes, c.resyncs = 0.05*w.rng.Float64(), 0.02*w.rng.Float64()
	switch c.profile {
	case "one at a time":
		c.failures, c.job.MaxNodeLosses = 0, 1000 // no node is lost too often
		c.kinds, c.gap = []fault{{"one", failOne}}, w.between(500*ms, 2*sec)
	case "members":
		c.kinds, c.gap = append(server, ends...), w.between(500*ms, 6*sec)
	case "network":
		c.kinds, c.gap = append(network, frozen...), w.between(300*ms, 4*sec)
	case "everything":
		c.kinds, c.gap = append(append(append(server, ends...), network...), frozen...), w.between(300*ms, 4*sec)
	}
}

// serving returns the node whose agent serves the store, or any victim if there is none.
func (w *world) serving() *simNode {
	for _, n := range w.nodes {
		if p := n.proc; p != nil && p.part != nil && p.part.server != nil && !p.exited {
			return n
		}
	}
	return w.victim()
}

// killMany kills most agents, or all but one, which is cut off.
func killMany(w *world) {
	most := 0.7 + 0.6*w.rng.Float64()
	spared := w.victim()
	if spared != nil && w.chance(0.5) {
		most = 1
		w.check.forgive(spared, "cut")
		w.cutLink(spared, up, 2*w.cfg.ttl)
		w.cutLink(spared, down, 2*w.cfg.ttl)
	}
	for _, n := range w.nodes {
		if w.chance(most) && (n != spared || most > 1) {
			w.after(w.between(0, 300*time.Millisecond), func() {
				if p := n.proc; p != nil && !p.exited {
					w.kill(n)
				}
			})
		}
	}
}

// settleTime is how long it may take until the store survives the loss of any node again, once all nodes are well.
const settleTime = 8 * time.Second

// failOne lets a node fail, once all that are there have been well for a while.
func failOne(w *world) {
	there := 0
	for _, n := range w.nodes {
		p := n.proc
		if p != nil {
			there++
		}
		if p != nil && (p.part == nil || p.session == "" || n.agent.frozen || n.cut[up] || n.cut[down] || p.m.state != busy) {
			w.wellSince = w.now
		}
	}
	if w.now-w.wellSince < settleTime || there < 2 || there <= w.cfg.job.Min {
		return
	}
	w.wellSince = w.now
	server := w.serving()
	if s := server.proc.part.Status; there > 2 && !s.SurvivesLoss {
		w.check.fail("one at a time", "the store would not survive the loss of a node: %+v", s)
		return
	}
	if there == 2 { // the job survives only the loss of an agent whose guard goes on
		if n := w.victim(); n != nil {
			w.killBefore(n, func() { n.restartAfter(w.between(0, w.cfg.restartDelay)) })
		}
		return
	}
	faults := []func(*world){
		killServer, kill, kill, losePower, losePower, losePower, terminateAgent, killBoth, freezeServer, cutServer, cut,
		freezeNode,
	}
	faults[w.rng.IntN(len(faults))](w)
}

// TestSimulationOfGroups simulates jobs whose agents keep the store together.
func TestSimulationOfGroups(t *testing.T) {
	seen := newGroups.test(t, testenv.Repeat(t, 100, 5000))
	t.Logf("%+v", seen)
	g := seen.simGroupCounts
	if seen.seeds >= 100 && min(g.anew, g.yields, g.takeovers, g.unacknowledged, g.lonely) == 0 {
		t.Errorf("too little happened: %+v", g)
	}
}

// newGroups makes worlds in which the agents keep their store together.
var newGroups simBuilder = newGroupWorld
