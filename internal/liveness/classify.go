package liveness

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// closeLook is what a close look has found of one worker.
type closeLook struct {
	first, last observation
	took        time.Duration // between the two
	shots       int           // observations
	disk, runs  int           // observations in which the main thread waited for a disk, or ran or was about to run
	stacks      int           // different stacks of the main thread
	frames      []pystack.Frame
	wait        string // the kernel function in which the main thread sleeps; empty if that is not known
	noPython    bool   // as in worker
	moved       bool   // a sign other than frames was shown
	// recent says that the worker has shown a sign in one of the last samples.
	recent bool
}

const (
	// fewStacks bounds the different stacks of a thread in a small loop.
	fewStacks = 8
	// spinShare is the share of a core from which on a thread in a small loop is spinning.
	spinShare = 0.25
)

// activity says what the worker does, and why if a person holds it.
func (l closeLook) activity() (_ stacks.Activity, held string) {
	w := worker{last: l.last, debugger: debugger(l.frames)}
	if held := w.held(); held != "" {
		return stacks.Held, held
	}
	switch {
	case l.shots == 0 || !l.last.known:
		return stacks.Unknown, ""
	case l.last.state == 'T' || l.last.state == 't':
		return stacks.Stopped, ""
	case l.disk == l.shots:
		return stacks.Disk, ""
	case l.moved || l.stacks > fewStacks:
		return stacks.Moving, ""
	case serves(l.frames) && l.last.state == 'S' && waitsForRequests(l.wait):
		return stacks.Idle, ""
	case l.last.main == l.first.main:
		return stacks.Blocked, ""
	case l.recent:
		return stacks.Moving, ""
	case l.runs > l.shots/2, // on a busy machine the share is small
		float64(l.last.main.cpu-l.first.main.cpu)/ticksPerSecond >= spinShare*l.took.Seconds():
		return stacks.Spinning, ""
	}
	return stacks.Polling, ""
}

// waitsForRequests reports whether a kernel function may be one in which servers wait. "" is unknown, so it may.
func waitsForRequests(wait string) bool {
	return wait == "" || strings.Contains(wait, "poll") || strings.Contains(wait, "select") ||
		strings.Contains(wait, "accept")
}

// cpuOf returns the CPU time of processes, in seconds.
func cpuOf(processes []process) (seconds float64) {
	for _, p := range processes {
		seconds += float64(p.cpu) / ticksPerSecond
	}
	return seconds
}

// busyTicks is the CPU time during a look, in ticks, from which on a descendant is at work.
const busyTicks = 5

// busyChild names a descendant that is at work: it has used CPU time, or waits for a CPU; empty for none. Its parent
// may wait for it. The subject is the process whose stacks are the worker's.
func busyChild(worker, subject int, before, after []process) string {
	was := make(map[processID]process)
	for _, p := range before {
		was[p.id] = p
	}
	for _, p := range after {
		last, same := was[p.id]
		if p.id.pid == worker || p.id.pid == subject || !same {
			continue
		}
		if p.cpu >= last.cpu+busyTicks || p.state == 'R' && last.state == 'R' {
			return fmt.Sprintf("pid %d (%s) uses CPU time", p.id.pid, p.name)
		}
	}
	return ""
}

// stuckChild names a descendant that can run neither before nor after the look; empty for none.
func stuckChild(worker int, before, after []process) string {
	stuck := make(map[processID]bool)
	for _, p := range before {
		stuck[p.id] = p.state == 'T' || p.state == 'D'
	}
	for _, p := range after {
		if p.id.pid == worker || !stuck[p.id] {
			continue
		}
		switch p.state {
		case 'T':
			return fmt.Sprintf("pid %d (%s) is stopped", p.id.pid, p.name)
		case 'D':
			return fmt.Sprintf("pid %d (%s) waits for a disk", p.id.pid, p.name)
		}
	}
	return ""
}
