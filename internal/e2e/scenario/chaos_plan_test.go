package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is a disturbance that begins at a time and ends after a duration. Some end at once.
type fault struct {
	kind string
	node int // node of the fault, or -1 for the store
	at   time.Duration
	last time.Duration
}

func (f fault) String() string {
	text := fmt.Sprintf("%8.3f s: %s", f.at.Seconds(), f.kind)
	if f.node >= 0 {
		text += fmt.Sprintf(", node%d", f.node)
	}
	if f.last > 0 {
		text += fmt.Sprintf(", for %.3f s", f.last.Seconds())
	}
	return text
}

// faultKind is a way to disturb a job.
type faultKind struct {
	name string
	// weight is the relative probability of the fault.
	weight int
	// takes lists the parts of a node, or of the store, that no other fault disturbs meanwhile.
	takes []string
	// min and max bound the duration. With 0 the fault ends at once, and its parts are taken for settle.
	min, max time.Duration
	atStore  bool
}

// settle is the time in which an agent is replaced after a fault that ends at once.
const settle = 500 * time.Millisecond

// Parts of a node, or of the store. A fault disturbs only one of the launcher's two processes at a time, or kills both.
// If the guard is stopped and the agent is killed or stopped for longer than the keep-alive time, no process is left
// that could kill the workers, which no design can prevent.
const (
	thePair  = "guard and agent"
	theLink  = "link"
	theChild = "workers"
	theProxy = "proxy"
	theDisk  = "disk"
	itself   = "process"
)

// Names of faults.
const (
	killAgent    = "SIGKILL of the agent"
	killGuard    = "SIGKILL of the guard"
	killBoth     = "SIGKILL of guard and agent"
	termAgent    = "SIGTERM"
	stopAgent    = "SIGSTOP of the agent"
	stopGuard    = "SIGSTOP of the guard"
	orphan       = "SIGKILL of the agent while the guard is stopped"
	killWorker   = "SIGKILL of a worker"
	stopWorker   = "SIGSTOP of a worker"
	failWorker   = "failure of a worker"
	cutLink      = "link cut"
	loseSent     = "packets to the store lost"
	loseReceived = "packets from the store lost"
	reset        = "connections reset at the store alone"
	loseBetween  = "packets between this node and the next one lost"
	powerOff     = "power off"
	killProxy    = "SIGKILL of the proxy"
	fullLog      = "full log disk"
	hungLog      = "hung log disk"
	killStore    = "SIGKILL of the store"
	stopStore    = "SIGSTOP of the store"
	cutStore     = "link of the store cut"
	fullStore    = "full data disk"
)

const second = time.Second

var faultKinds = []faultKind{
	{name: killAgent, weight: 6, takes: []string{thePair}},
	{name: killGuard, weight: 6, takes: []string{thePair}},
	{name: killBoth, weight: 4, takes: []string{thePair}},
	{name: termAgent, weight: 3, takes: []string{thePair}},
	{name: stopAgent, weight: 6, takes: []string{thePair}, min: second / 5, max: 9 * second},
	{name: stopGuard, weight: 3, takes: []string{thePair}, min: second / 5, max: 9 * second},
	{name: orphan, weight: 4, takes: []string{thePair, theChild}},
	{name: killWorker, weight: 6, takes: []string{theChild}},
	{name: stopWorker, weight: 3, takes: []string{theChild}, min: second / 5, max: 9 * second},
	{name: failWorker, weight: 3, takes: []string{theChild}},
	{name: cutLink, weight: 5, takes: []string{theLink}, min: second, max: 40 * second},
	{name: loseSent, weight: 3, takes: []string{theLink}, min: second, max: 15 * second},
	{name: loseReceived, weight: 3, takes: []string{theLink}, min: second, max: 15 * second},
	{name: reset, weight: 6, takes: []string{theLink}, min: second, max: 15 * second},
	{name: loseBetween, weight: 4, takes: []string{theLink}, min: second, max: 15 * second},
	{name: powerOff, weight: 3, takes: []string{thePair, theLink, theChild, theDisk}, min: second, max: 15 * second},
	{name: killProxy, weight: 6, takes: []string{theProxy}, min: second / 5, max: 10 * second},
	{name: fullLog, weight: 3, takes: []string{theDisk, thePair}, min: second, max: 10 * second},
	{name: hungLog, weight: 3, takes: []string{theDisk, thePair}, min: second, max: 15 * second},
	{name: killStore, weight: 3, takes: []string{itself}, min: second / 10, max: 5 * second, atStore: true},
	{name: stopStore, weight: 2, takes: []string{itself}, min: second / 2, max: 8 * second, atStore: true},
	{name: cutStore, weight: 2, takes: []string{theLink}, min: second, max: 8 * second, atStore: true},
	{name: fullStore, weight: 2, takes: []string{itself}, min: second, max: 5 * second, atStore: true},
}

// setup describes the parts of a chaos run that faults depend on.
type setup struct {
	nodes, least int // of the job, at most and at least
	// detached lists the nodes whose workers have grandchildren, which PDEATHSIG does not end. Guard and agent are
	// never killed together there.
	detached []int
	proxied  []int // nodes that reach the store through the proxy
	disks    []int // nodes whose log folder is on a disk of its own
	ownStore bool  // the store is a process of its own, not part of node0's agent
	dataDisk bool  // the store keeps its data on a disk of its own
	anywhere bool  // any node may keep the store, so none is spared
	inTurn   bool  // one fault at a time
	without  []string
}

// on returns the nodes on which a fault can happen; -1 is the store.
func (s setup) on(k faultKind) []int {
	var nodes []int
	for n := range s.nodes {
		nodes = append(nodes, n)
	}
	atStore := []int{-1}
	switch {
	case slices.Contains(s.without, k.name) || k.atStore && !s.ownStore || k.name == fullStore && !s.dataDisk:
		return nil
	case k.atStore:
		return atStore
	case k.name == killBoth:
		return slices.DeleteFunc(nodes, func(n int) bool { return slices.Contains(s.detached, n) })
	case k.name == killProxy:
		return s.proxied[:min(1, len(s.proxied))] // there is one proxy
	case k.name == fullLog || k.name == hungLog:
		return s.disks
	case k.name == reset && s.anywhere && !s.inTurn:
		// The other agents consider an agent gone whose connections are refused, and may begin a second store beside it.
		return nil
	case !s.ownStore && !s.anywhere && (k.name == loseSent || k.name == loseReceived || k.name == reset):
		return nodes[1:] // node0 hosts the store
	}
	return nodes
}

// plan returns the faults of a run, sorted by time. The same seed returns the same plan.
func plan(seed uint64, length time.Duration, s setup) []fault {
	random := rand.New(rand.NewPCG(seed, 0))
	type part struct {
		node int
		name string
	}
	until := map[part]time.Duration{}
	var kinds []faultKind
	for _, k := range faultKinds {
		if k.name == loseBetween && !s.anywhere { // the store is at one host: it does nothing
			continue
		}
		for range k.weight {
			kinds = append(kinds, k)
		}
	}
	var faults []fault
	// The first fault begins after the job has started.
	for at := 2 * second; at < length; at += second/5 + time.Duration(random.Int64N(int64(2*second))) {
		k := kinds[random.IntN(len(kinds))]
		on := s.on(k)
		if len(on) == 0 {
			continue
		}
		f := fault{kind: k.name, node: on[random.IntN(len(on))], at: at}
		if k.max > 0 {
			// Short durations are more frequent, because most defects happen within the keep-alive time.
			share := random.Float64()
			f.last = k.min + time.Duration(share*share*float64(k.max-k.min))
		}
		busy := false
		for _, p := range k.takes {
			busy = busy || until[part{f.node, p}] > at
		}
		if n := len(faults); s.inTurn && n > 0 {
			busy = busy || faults[n-1].at+max(faults[n-1].last, settle) > at
		}
		if busy {
			continue
		}
		for _, p := range k.takes {
			until[part{f.node, p}] = at + max(f.last, settle) + settle
		}
		faults = append(faults, f)
	}
	return faults
}

func TestPlan(t *testing.T) {
	s := setup{nodes: 4, detached: []int{3}, proxied: []int{2}, disks: []int{1}, ownStore: true, dataDisk: true}
	takes := map[string][]string{}
	for _, k := range faultKinds {
		takes[k.name] = k.takes
	}
	count := map[string]int{}
	for seed := range uint64(20) {
		faults := plan(seed, 20*time.Minute, s)
		if again := plan(seed, 20*time.Minute, s); !slices.Equal(faults, again) {
			t.Fatalf("seed %d has two plans", seed)
		}
		for i, f := range faults {
			count[f.kind]++
			if f.kind == killBoth && f.node == 3 || f.kind == killProxy && f.node != 2 {
				t.Errorf("seed %d: %s", seed, f)
			}
			for _, later := range faults[i+1:] {
				same := slices.ContainsFunc(takes[f.kind], func(p string) bool {
					return slices.Contains(takes[later.kind], p)
				})
				if same && later.node == f.node && later.at < f.at+f.last {
					t.Errorf("seed %d: %s while %s", seed, later, f)
				}
			}
		}
	}
	for _, k := range faultKinds {
		if count[k.name] < 20 && k.name != loseBetween {
			t.Errorf("%d times %s in 20 runs", count[k.name], k.name)
		}
	}
	for _, f := range plan(1, 20*time.Minute, setup{nodes: 4, without: []string{reset}}) {
		if f.node < 0 || f.kind == reset || strings.Contains(f.kind, "disk") || f.kind == killProxy {
			t.Errorf("without all of that: %s", f)
		}
	}
}

// TestPlanInTurn verifies that a plan in turn has no two faults at the same time and spares no node.
func TestPlanInTurn(t *testing.T) {
	first := map[string]int{}
	for seed := range uint64(20) {
		var before fault
		for _, f := range plan(seed, 20*time.Minute, setup{nodes: 4, anywhere: true, inTurn: true}) {
			if f.node < 0 || f.at < before.at+max(before.last, settle) {
				t.Errorf("seed %d: %s after %s", seed, f, before)
			}
			if before = f; f.node == 0 {
				first[f.kind]++
			}
		}
	}
	for _, kind := range []string{
		killBoth, termAgent, stopAgent, cutLink, loseSent, loseReceived, reset, loseBetween, powerOff,
	} {
		if first[kind] == 0 {
			t.Errorf("the first node never has %s", kind)
		}
	}
}
