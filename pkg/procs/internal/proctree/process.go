package proctree

import (
	"fmt"
	"time"
)

// Process is one entry of /proc as one look saw it. Start, in clock ticks since
// boot, tells it from a later process with the same pid.
type Process struct {
	PID, PPID, Session int
	State              byte
	Threads            int
	Start              string
	Comm               string
}

// KillInterval is the pause between two rounds of SIGKILL, for children that
// were being forked during the round before.
const KillInterval = 20 * time.Millisecond

// Dead reports whether only the exit status is left. A process whose first
// thread has ended shows state Z too while its other threads run on.
func (p Process) Dead() bool { return p.State == 'X' || p.State == 'Z' && p.Threads <= 1 }

// hidden says that /proc does not show the process, which is a child of this one.
func (p Process) hidden() bool { return p.Start == "" }

// String names the process for a report.
func (p Process) String() string {
	return fmt.Sprintf("pid %d (%s), state %c", p.PID, p.Comm, p.State)
}

// Descendants returns the processes of all below root that are reached through
// processes for which in holds.
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
