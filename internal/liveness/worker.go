package liveness

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"time"
)

const (
	// mainRing and threadRing are how many distinct stacks are remembered. A waiting loop visits fewer stacks; a
	// training loop visits more.
	mainRing   = 16
	threadRing = 64
	// busyShare is the share of a core above which the other threads of a process are read while its main thread
	// sleeps.
	busyShare = 0.05
	// mostVain limits the pause between two searches for Python below a worker to 2^mostVain samples.
	mostVain = 4
)

// worker is what is known of one worker. It has no clock: each sample passes in the elapsed time.
type worker struct {
	localRank, pid int

	last    observation
	elapsed time.Duration // since last was taken
	ended   bool
	shown   signSet       // in this sample
	quiet   time.Duration // counted time since the last sign
	latest  string        // the last sign, in words for people; "" for none
	// hidden says that the main thread has run since the last sign while another worker of the node showed a sign, so
	// the main thread's stack was not read. quiet counts from then on.
	hidden bool
	wrote  bool          // this sample had output, whether it is a sign or not
	silent time.Duration // counted time since the last output
	// delegates says that the main thread, when last read, waited for another thread or process to end.
	delegates bool
	step      optional // the last one, from the output or the heartbeat file
	counts    [signKinds]recurrence

	ran   bool    // the main thread has run since the last sample
	share float64 // of a core that the process has used since then

	// unread says that the main thread has run since its stack was last read, or that the stack was never read.
	unread       bool
	framed       bool // the last sample showed frames, whether they counted or not
	mainStacks   ring
	threadStacks ring
	// python is the pid of the worker's Python process, 0 before one is found. noPython says that there is none.
	python   int
	noPython bool
	// pause is in how many samples the next search for Python comes. It doubles with each failed search; vain counts them
	// up to mostVain.
	pause, vain int
	debugger    string // at whose prompt the last stack that was read is
	// began says that the worker's Python has run a frame, or that the worker is not Python. signed says that the
	// worker has shown a sign since.
	began, signed bool

	children map[processID]process // as of the last scan; nil before the first scan of this silence
	scanned  time.Duration         // time since that scan
}

func newWorker(localRank, pid int) *worker {
	return &worker{
		localRank: localRank, pid: pid, unread: true, mainStacks: ring{size: mainRing}, threadStacks: ring{size: threadRing},
	}
}

// observe takes a sample, dt after the previous one. A process's counters start at 0, so the first sample shows
// everything since the process started.
func (w *worker) observe(o observation, dt time.Duration) {
	w.shown, w.ran, w.share, w.wrote = 0, false, 0, false
	w.elapsed += dt
	w.scanned += dt
	w.pause = max(0, w.pause-1)
	if !o.known || w.ended {
		w.last.known = false
		return
	}
	if o.ended {
		w.ended = true
		w.shown.add(exitSign)
		w.latest = exitSign.String()
		return
	}
	last, in := w.last, w.elapsed
	if last.pid != 0 && last.pid != o.pid { // the Python process was found, or another one
		last.main, last.cpu, last.bytes, last.faults = o.main, o.cpu, o.bytes, o.faults
	}
	w.last, w.elapsed = o, 0
	if w.ran = o.main != last.main; w.ran {
		w.unread, w.debugger, w.delegates = true, "", false
	}
	if in > 0 && o.cpu > last.cpu {
		w.share = float64(o.cpu-last.cpu) / ticksPerSecond / in.Seconds()
	}
	w.compare(last, o, in)
}

// compare finds the signs between two observations.
func (w *worker) compare(last, now observation, in time.Duration) {
	if now.step.set && now.step != last.step {
		w.shown.add(stepSign)
		w.step = now.step
	}
	if now.heartbeat != last.heartbeat {
		w.shown.add(heartbeatSign)
		if s := now.heartbeat.step; s.set && s != last.heartbeat.step {
			w.shown.add(stepSign)
			w.step = s
		}
	}
	// While the main thread stands still, another thread may keep printing that it waits. That output is a sign only if
	// the process computes, or if the main thread waits for another thread to end and so delegates its work.
	w.wrote = now.output > last.output
	if w.wrote && (w.ran || w.noPython || w.share >= busyShare || w.delegates) {
		w.shown.add(outputSign)
	}
	if enoughBytes.reached(last.bytes, now.bytes, in) {
		w.shown.add(bytesSign)
	}
	// Received data, RDMA and mapped files do not count as bytes, but they cause page faults when they land in memory.
	if enoughFaults.reached(last.faults, now.faults, in) {
		w.shown.add(faultsSign)
	}
}

// printed reports whether this sample had output that is a sign only if another program below the worker wrote it.
func (w *worker) printed() bool { return w.wrote && !w.shown.has(outputSign) }

// addTree takes a list of the worker's processes, and compares it with the list before in the same silence, if any.
func (w *worker) addTree(processes []process) {
	before, in, subject := w.children, w.scanned, cmp.Or(w.python, w.pid)
	w.children, w.scanned = make(map[processID]process, len(processes)), 0
	var own process
	for _, p := range processes {
		if w.children[p.id] = p; p.id.pid == subject {
			own = p
		}
	}
	if w.printed() && w.othersRun(own) {
		w.shown.add(outputSign)
	}
	if before == nil {
		return
	}
	if len(before) != len(w.children) {
		w.shown.add(childSign)
	}
	for _, p := range processes {
		if last, same := before[p.id]; !same {
			w.shown.add(childSign)
		} else if p.id.pid != subject {
			w.compareChild(last, p, p.isPartOf(own), in)
		}
	}
}

// othersRun reports whether another program that is not part of the subject runs below the worker and does more than
// start the subject, as a shell does. Such a program may be the trainer, and the subject only its wrapper.
func (w *worker) othersRun(subject process) bool {
	parents := make(map[int]int, len(w.children)) // by pid
	for id, p := range w.children {
		parents[id.pid] = p.parent
	}
	above := map[int]bool{}
	for pid := subject.id.pid; pid != 0 && !above[pid]; pid = parents[pid] {
		above[pid] = true
	}
	for id, p := range w.children {
		if !above[id.pid] && p.state != 'Z' && !p.isPartOf(subject) {
			return subject.id.pid != 0
		}
	}
	return false
}

// isPartOf reports whether a descendant runs the worker's own program: it was forked, or package multiprocessing
// started it. A script that the worker runs as a separate program is not part of it, even if it is Python.
func (p process) isPartOf(worker process) bool {
	return p.exe == worker.exe && (p.args == worker.args || strings.Contains(p.args, "from multiprocessing."))
}

// compareChild finds the signs of a descendant. own says that the descendant is part of the worker; its CPU time is
// then no sign, because data loaders poll.
func (w *worker) compareChild(last, now process, own bool, in time.Duration) {
	if enoughBytes.reached(last.bytes, now.bytes, in) {
		w.shown.add(bytesSign)
	}
	switch {
	case own && enoughFaults.reached(last.faults, now.faults, in):
		w.shown.add(faultsSign)
	case !own && enoughCPU.reached(last.cpu, now.cpu, in):
		w.shown.add(childSign)
	}
}

// wish returns which stacks must be read to see whether the worker moves.
func (w *worker) wish() stackWish {
	switch {
	case w.ended || !w.last.known || w.pause > 0:
		return noStacks
	case !w.ran && w.share >= busyShare:
		return allStacks
	case w.unread:
		return mainStack
	}
	return noStacks // the stack cannot have changed
}

// addStacks takes the stacks that wish requested.
func (w *worker) addStacks(r stackRead, seed maphash.Seed) {
	if !r.known {
		return
	}
	if w.noPython = r.pid == 0; w.noPython {
		w.python, w.began, w.unread = 0, true, false
		w.vain = min(w.vain+1, mostVain)
		w.pause = 1 << w.vain
		return
	}
	w.python, w.vain = r.pid, 0
	if len(r.threads) == 0 {
		return
	}
	main := r.threads[0]
	w.began = w.began || len(main.Frames) > 0
	w.unread, w.debugger, w.delegates = false, debugger(main.Frames), delegates(main.Frames)
	if w.mainStacks.add(hashStack(seed, 0, main.Frames)) && w.ran {
		w.shown.add(framesSign)
	}
	for _, t := range r.threads[1:] {
		if w.threadStacks.add(hashStack(seed, t.ID, t.Frames)) {
			w.shown.add(framesSign)
		}
	}
}

// held says why a person keeps the worker from running; empty if nobody does.
func (w *worker) held() string {
	switch {
	case w.ended || !w.last.known:
		return ""
	case w.last.tracer != 0:
		return fmt.Sprintf("process %d traces it", w.last.tracer)
	case w.debugger != "":
		return "it is in the debugger " + w.debugger
	case w.last.unread:
		return "its output is not read: the console has no room"
	case w.last.atTerminal:
		return "it waits for input from a terminal"
	}
	return ""
}

// settle ends a sample. counted is the part of the elapsed time that counts, and now is the node's clock. others says
// that another worker of the node has shown a sign. settle reports whether a kind of sign now has a rhythm.
func (w *worker) settle(counted, now time.Duration, others bool) (rhythm bool) {
	if w.silent += counted; w.wrote {
		w.silent = 0
	}
	first := w.shown.first()
	if first == noSign {
		if w.quiet += counted; others && w.ran && w.unread {
			w.quiet, w.hidden = 0, true
		}
		return false
	}
	w.quiet, w.latest, w.hidden = 0, first.String(), false
	if first == stepSign {
		w.latest += " " + strconv.FormatInt(w.step.value, 10)
	}
	w.signed = w.signed || w.began
	for kind := noSign + 1; kind < signKinds; kind++ {
		if w.shown.has(kind) && w.counts[kind].add(now) {
			rhythm = true
		}
	}
	return rhythm
}
