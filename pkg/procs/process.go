package procs

import "fmt"

// process is one entry of /proc as one look saw it. start, in clock ticks since
// boot, tells it from a later process with the same pid.
type process struct {
	pid, ppid, session int
	state              byte
	threads            int
	start              string
	comm               string
}

// dead reports whether only the exit status is left. A process whose first
// thread has ended shows state Z too while its other threads run on.
func (p process) dead() bool { return p.state == 'X' || p.state == 'Z' && p.threads <= 1 }

// hidden says that /proc does not show the process, which is a child of this one.
func (p process) hidden() bool { return p.start == "" }

// String names the process for a report.
func (p process) String() string {
	return fmt.Sprintf("pid %d (%s), state %c", p.pid, p.comm, p.state)
}

// descendants returns the processes of all below root that are reached through
// processes for which in holds.
func descendants(root int, all []process, in func(process) bool) []process {
	children := make(map[int][]process)
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var found []process
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if in(p) {
				found = append(found, p)
				next = append(next, p.pid)
			}
		}
	}
	return found
}
