package proctree

import (
	"fmt"
	"time"
)

// Process is one entry of /proc at the time of a scan. Start, in clock ticks since boot, distinguishes it from a
// later process with the same pid.
type Process struct {
	PID, PPID, Session int
	State              byte
	Threads            int
	Start              string
	Comm               string
}

// KillInterval is the pause between two rounds of SIGKILL. The second round is for children that were being forked
// during the first.
const KillInterval = 20 * time.Millisecond

// Dead reports whether only the exit status is left. A process whose first thread has ended also shows state Z while
// its other threads still run.
func (p Process) Dead() bool { return p.State == 'X' || p.State == 'Z' && p.Threads <= 1 }

// Stopped reports whether job control or a debugger has stopped the process.
func (p Process) Stopped() bool { return p.State == 'T' || p.State == 't' }

// hidden reports whether /proc does not show the process, which is a child of this one.
func (p Process) hidden() bool { return p.Start == "" }

// String identifies the process in a report.
func (p Process) String() string {
	return fmt.Sprintf("pid %d (%s), state %c", p.PID, p.Comm, p.State)
}

// Descendants returns the descendants of root among all that are reached only through processes for which in returns
// true.
func Descendants(root int, all []Process, in func(Process) bool) []Process {
	children := make(map[int][]Process)
	for _, p := range all {
		children[p.PPID] = append(children[p.PPID], p)
	}
	var found []Process
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if in(p) {
				found = append(found, p)
				next = append(next, p.PID)
			}
		}
	}
	return found
}
