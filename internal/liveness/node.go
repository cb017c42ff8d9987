package liveness

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"
)

const (
	leastInterval = 250 * time.Millisecond
	mostInterval  = 15 * time.Second
	// quietInterval bounds the interval in a long silence, so that its end is seen soon.
	quietInterval = 5 * time.Second
	// intervals is how many samples a timeout has, unless another constant bounds the interval.
	intervals = 8
	// A silence is long from 1/closerPart of the timeout on. Then the workers' processes are listed.
	closerPart = 4
)

// node decides whether the workers of this node are quiet. It has neither clock nor files. A sample is these calls:
//
//	observe; addTrees if wantsTrees; addStacks if a wish is not noStacks; finish
type node struct {
	given   time.Duration // the timeout; 0: it follows from the cadence
	seed    maphash.Seed
	workers []*worker

	clock   time.Duration // time that counts, since the start
	quiet   time.Duration // time that counts, since the last sign of any worker
	cadence cadence

	dt, counted time.Duration // of this sample
	suspended   bool          // in this sample
	reported    *Quiet        // nil: the node is not quiet
}

func newNode(given time.Duration, workers []Worker) *node {
	n := &node{given: given, seed: maphash.MakeSeed()}
	for _, w := range workers {
		n.workers = append(n.workers, newWorker(w.LocalRank, w.PID))
	}
	return n
}

// timeout returns the silence after which the node is quiet.
func (n *node) timeout() time.Duration {
	if n.given > 0 {
		return n.given
	}
	return n.cadence.timeout()
}

// interval returns the time until the next sample.
func (n *node) interval() time.Duration {
	d := min(max(n.timeout()/intervals, leastInterval), mostInterval)
	if n.isClose() {
		d = min(d, quietInterval)
	}
	return d
}

func (n *node) isClose() bool { return n.quiet > n.timeout()/closerPart }

// observe begins a sample with what was found of each worker, dt after the one before. If dt is long, the launcher did
// not run, for example because its virtual machine was paused. The workers may not have run either, so only a part of
// dt counts.
func (n *node) observe(dt time.Duration, found []observation) {
	n.dt, n.suspended = dt, false
	n.counted = min(dt, 2*n.interval())
	for i, w := range n.workers {
		w.observe(found[i], dt)
	}
}

// suspend is a sample while the job is suspended. Nothing counts, and no worker needs to be observed.
func (n *node) suspend() {
	n.suspended = true
	for _, w := range n.workers {
		w.shown, w.wrote = 0, false
	}
}

// moves reports whether a worker has shown a sign in this sample.
func (n *node) moves() bool {
	for _, w := range n.workers {
		if w.shown != 0 {
			return true
		}
	}
	return false
}

// wantsTrees reports whether the processes below the workers are needed. They are needed in a long silence, and if they
// decide whether output is a sign.
func (n *node) wantsTrees() bool {
	if n.suspended || n.moves() {
		return false
	}
	return n.quiet+n.counted >= n.timeout()/closerPart ||
		slices.ContainsFunc(n.workers, (*worker).printed)
}

// addTrees takes the processes of each worker; nil if they are not known.
func (n *node) addTrees(trees [][]process) {
	for i, w := range n.workers {
		if trees[i] != nil {
			w.addTree(trees[i])
		}
	}
}

// wishes returns which stacks are needed; nil for none. They are needed if no worker has shown a sign that costs less
// to find, or with a given timeout until Python is known to have begun in a worker.
func (n *node) wishes() []stackWish {
	if n.suspended {
		return nil
	}
	moves, wanted := n.moves(), false
	begun := n.given == 0
	for _, w := range n.workers {
		begun = begun || w.began
	}
	wishes := make([]stackWish, len(n.workers))
	for i, w := range n.workers {
		wish := w.wish()
		if moves && (begun || wish == noStacks) {
			continue
		}
		begun = true // one worker is enough
		wishes[i] = wish
		wanted = wanted || wish != noStacks
	}
	if !wanted {
		return nil
	}
	return wishes
}

// addStacks takes the stacks that wishes asked for.
func (n *node) addStacks(read []stackRead) {
	for i, w := range n.workers {
		w.addStacks(read[i], n.seed)
	}
}

// held says why the silence does not count; empty if it does.
func (n *node) held() string {
	if n.suspended {
		return "the job is suspended"
	}
	for _, w := range n.workers {
		if why := w.held(); why != "" {
			return fmt.Sprintf("local rank %d: %s", w.localRank, why)
		}
	}
	return ""
}

// doubt ignores new frames once the node was reported as quiet, unless the same worker shows some in two samples in a
// row: a loop that waits may visit a few stacks more than are remembered.
func (n *node) doubt() {
	for _, w := range n.workers {
		again := w.framed
		w.framed = w.shown.has(framesSign)
		if n.reported != nil && !again {
			w.shown.remove(framesSign)
		}
	}
}

// finish ends the sample. If changed is true, q must be reported: the silence, or nil if the node is no longer quiet.
func (n *node) finish() (q *Quiet, changed bool) {
	n.doubt()
	held, moves := n.held(), n.moves()
	gap := n.quiet
	if held == "" {
		n.clock += n.counted
		gap += n.counted
	}
	rhythm := false
	for _, w := range n.workers {
		rhythm = w.settle(gap-n.quiet, n.clock, moves) || rhythm
	}
	if moves {
		n.cadence.gap(gap)
		n.cadence.learned = n.cadence.learned || rhythm
		n.quiet = 0
		for _, w := range n.workers {
			w.children = nil
		}
		changed = n.reported != nil
		n.reported = nil
		return nil, changed
	}
	n.quiet = gap
	if n.quiet < n.timeout() {
		return nil, false
	}
	now := Quiet{For: n.quiet, Learned: n.learned(), Held: held}
	if r := n.reported; r != nil && r.Learned == now.Learned && r.Held == now.Held {
		return nil, false
	}
	n.reported = &now
	return &now, true
}

// learned reports whether so long a silence is unusual.
func (n *node) learned() bool {
	if n.given == 0 {
		return n.cadence.learned
	}
	for _, w := range n.workers {
		if w.signed {
			return true
		}
	}
	return false
}
