package guard

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/siginfo"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// passOn sends the child a signal that the guard has received. For Ctrl-\ it asks the child to show its workers' stacks
// instead. It reports whether it has sent one.
func (c *child) passOn(sig syscall.Signal, origins *siginfo.Watcher, keyIsOurs bool) (sent bool) {
	origin := origins.Take(sig)
	if sig == syscall.SIGQUIT {
		switch originOfQuit(origin, origins.Watches(sig), keyIsOurs) {
		case quitTyped:
			c.link.sendShowStacks()
			return false
		case quitHandled:
			return false
		case quitSent:
		}
	}
	c.signal(sig, origin)
	return true
}

// quitOrigin is where SIGQUIT came from.
type quitOrigin int

const (
	quitSent    quitOrigin = iota // a process has sent it, or that is not known
	quitTyped                     // it is Ctrl-\ alone
	quitHandled                   // an earlier one has included it
)

// originOfQuit distinguishes Ctrl-\ from a SIGQUIT that a process has sent. A terminal sends SIGQUIT when the key is
// typed; no process can put the kernel's code into a signal for another one. Ctrl-\ keeps its usual meaning if an
// ancestor in the same process group, which gets the key too, would die of it, such as a script of a shell that does
// not ignore it. keyIsOurs says that none would.
func originOfQuit(o siginfo.Origin, watched, keyIsOurs bool) quitOrigin {
	switch {
	case !watched || !keyIsOurs || o.Sent > 0:
		return quitSent
	case o.Kernel > 0:
		return quitTyped
	}
	return quitHandled
}

// groupSurvivesQuit reports whether every ancestor in this process's group handles or ignores SIGQUIT.
func groupSurvivesQuit() bool {
	group := unix.Getpgrp()
	if group == unix.Getpid() { // a shell with job control has started this process
		return true
	}
	for pid := os.Getppid(); ; {
		theirs, err := unix.Getpgid(pid)
		switch {
		case pid == 0 || err != nil || !proctree.ProcIsOurs():
			return false
		case theirs != group:
			return true
		case !proctree.SignalSet(pid, "SigIgn:", unix.SIGQUIT) && !proctree.SignalSet(pid, "SigCgt:", unix.SIGQUIT):
			return false
		}
		p, ok := proctree.Read(pid)
		if !ok {
			return false
		}
		pid = p.PPID
	}
}
