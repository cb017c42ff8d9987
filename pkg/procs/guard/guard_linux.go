package guard

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/siginfo"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// Supported reports whether [Run] works on this system.
func Supported() bool { return true }

// Run runs this program again, with the same arguments, as a child. The child's role is [RoleAgent], or [RoleGuard] if
// this process already has children that a sweep must not touch, such as a shell's process substitution.
//
// Run passes signals on, except a SIGQUIT that was typed at the terminal (Ctrl-\): the child gets a request to show its
// workers' stacks instead ([Lifeline.StackRequests]). Run returns when the child has exited, however it exited, and no
// process below this one is left. The child shares stdin, stdout and stderr.
func Run(opts Options) (Result, error) {
	opts.ExitTimeout = cmp.Or(opts.ExitTimeout, 10*time.Second)
	opts.SweepTimeout = cmp.Or(opts.SweepTimeout, 30*time.Second)
	opts.ShortSweepTimeout = cmp.Or(opts.ShortSweepTimeout, 5*time.Second)
	role := RoleAgent
	if !proctree.NoChildren() {
		role = RoleGuard
	} else if err := proctree.BecomeSubreaper(); err != nil {
		return Result{}, fmt.Errorf("become child subreaper: %w", err)
	}
	origins := siginfo.Watch(forwarded()...) // before signals are received, so that it counts each of them
	defer origins.Close()
	keyIsOurs := groupSurvivesQuit()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, procs.NotIgnored(forwarded())...)
	defer signal.Stop(signals)

	lifeline := opts.Lifeline
	if lifeline != nil { // the guard above has checked the room for one guard only
		if err := procs.CheckRoom(runtime.GOMAXPROCS(0)); err != nil {
			return Result{}, err
		}
	}
	if err := reserveResources(); err != nil {
		return Result{}, err
	}
	var kill deadlineKiller
	var notices notices
	jobs := newJobControl(&kill, &opts, &notices)
	defer jobs.close()
	c, err := startChild(role)
	if err != nil {
		return Result{}, err
	}
	defer c.close()
	exited := make(chan procs.Exit, 1)
	go func() { exited <- c.wait() }()
	announced := c.link.announced
	var exitTimeout <-chan time.Time
	jobs.child = c
	for {
		select {
		case sig := <-signals:
			if c.passOn(sig.(syscall.Signal), origins, keyIsOurs) {
				jobs.cancel()
			}
		case <-lifeline.StackRequests():
			c.link.sendShowStacks()
		case sig := <-jobs.signals:
			jobs.signaled(sig)
		case r := <-lifeline.SuspendRequests():
			jobs.requested(r)
		case confirmation := <-c.link.confirmed:
			jobs.confirmed(confirmation)
		case <-lifeline.Broken():
			c.signal(syscall.SIGKILL, siginfo.Origin{})
			lifeline = nil
		case <-c.timer.expired:
			after, _ := c.timer.passed()
			if kill.begin(c) > 0 && opts.OnDeadline != nil {
				notices.add(func() { opts.OnDeadline(after) })
			}
			jobs.killed()
		case <-kill.again:
			kill.repeat()
		case <-announced:
			announced, exitTimeout = nil, time.After(opts.ExitTimeout)
		case <-exitTimeout: // the agent hangs in the kernel: the sweep names it
			exit := procs.Exit{PID: c.pid, Code: c.link.code, At: time.Now()}
			return c.finish(exit, role, opts, opts.ShortSweepTimeout, &notices), nil
		case exit := <-exited:
			return c.finish(exit, role, opts, opts.SweepTimeout, &notices), nil
		}
	}
}

// finish sweeps, after the child has exited, and returns the result.
func (c *child) finish(exit procs.Exit, role Role, opts Options, timeout time.Duration, notices *notices) Result {
	result := Result{Exit: exit, ExitAnnounced: c.link.finish()}
	if result.StuckReported = c.link.stuck; result.StuckReported {
		timeout = opts.ShortSweepTimeout
	}
	if role == RoleAgent {
		if result.Swept, result.Stuck = proctree.Sweep(timeout); len(result.Stuck) == 0 {
			result.ExitNotice, result.Record = c.link.notice, readRecord(c.record)
		}
	}
	notices.wait()
	return result
}

// forwarded lists the signals that the guard passes on: neither those of [jobControl], nor those that the kernel or the
// Go runtime raises for the process itself.
func forwarded() []syscall.Signal {
	return []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU,
	}
}

// noticeTimeout is how long the guard waits, before it exits, for calls of OnDeadline to return.
const noticeTimeout = time.Second

// notices runs calls of OnDeadline in goroutines, because a console may block.
type notices struct{ running sync.WaitGroup }

func (n *notices) add(call func()) { n.running.Go(call) }

func (n *notices) wait() {
	all := make(chan struct{})
	go func() {
		defer close(all)
		n.running.Wait()
	}()
	select {
	case <-all:
	case <-time.After(noticeTimeout):
	}
}
