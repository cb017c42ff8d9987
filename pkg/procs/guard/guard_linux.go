package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/limits"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/proctree"
)

// guardBound limits the guard's last sweep; a process that survives SIGKILL for
// so long is in uninterruptible sleep or held by a tracer. Where the agent has waited for such
// a process already, and said so, toldBound has to do.
const (
	guardBound = 30 * time.Second
	toldBound  = 5 * time.Second
	// endBound is how long an agent that has announced its end may take to vanish.
	endBound = 10 * time.Second
)

// Run runs this program again, with the same arguments, as a child that sees
// itself as role says: [RoleAgent], or [RoleGuard] where this process has children
// already (a shell's process substitution, say), which a sweep must not touch. It
// passes signals on and returns when the child has ended, however it did,
// and no process below this one is left. Stdin, stdout and stderr are shared.
//
// lifeline is this process's own link to a guard above it, or nil; when it
// breaks the child is killed. silent is called each time that workers are killed because the agent
// let its [Lifeline.SetDeadline] pass, with the time that it had set; it may be nil, and
// it may block, as a console does.
func Run(lifeline *Lifeline, silent func(after time.Duration)) (Result, error) {
	role := RoleAgent
	if !proctree.NoChildren() {
		role = RoleGuard
	} else if err := proctree.BecomeSubreaper(); err != nil {
		return Result{}, fmt.Errorf("become child subreaper: %w", err)
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, procs.NotIgnored(forwarded())...)
	defer signal.Stop(signals)

	if lifeline != nil { // the check of the guard above was for one guard
		if err := procs.CheckRoom(runtime.GOMAXPROCS(0)); err != nil {
			return Result{}, err
		}
	}
	if err := guardResources(); err != nil {
		return Result{}, err
	}
	child, err := startSelf(role)
	if err != nil {
		return Result{}, err
	}
	defer child.close()
	ended := make(chan procs.Exit, 1)
	go func() { ended <- child.wait() }()
	announced := child.link.announced
	var overdue <-chan time.Time
	var late killing
	var told lastWords
	for {
		select {
		case sig := <-signals:
			child.signal(sig.(syscall.Signal))
		case <-lifeline.Broken():
			child.signal(syscall.SIGKILL)
			lifeline = nil
		case <-child.timer.expired:
			after, _ := child.timer.passed()
			if late.begin(child) > 0 && silent != nil {
				told.add(func() { silent(after) })
			}
		case <-late.again:
			late.goOn()
		case <-announced:
			announced, overdue = nil, time.After(endBound)
		case <-overdue: // it hangs in the kernel: the sweep will tell
			return child.conclude(procs.Exit{PID: child.pid, Code: child.link.code, At: time.Now()}, role, toldBound, &told), nil
		case exit := <-ended:
			return child.conclude(exit, role, guardBound, &told), nil
		}
	}
}

// conclude is what there is to do when the child has ended; bound is for the sweep.
func (g *guarded) conclude(exit procs.Exit, role Role, bound time.Duration, told *lastWords) Result {
	result := Result{Exit: exit, ExitAnnounced: g.link.finish()}
	if result.StuckReported = g.link.stuck; result.StuckReported {
		bound = toldBound
	}
	if role == RoleAgent {
		if result.Swept, result.Stuck = proctree.Sweep(bound); len(result.Stuck) == 0 {
			result.ExitNotice = g.link.notice
		}
	}
	told.wait()
	return result
}

// forwarded lists the signals the guard passes on. Not those of job control, nor those that
// the kernel or the runtime raise for the process itself.
func forwarded() []syscall.Signal {
	return []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU,
	}
}

// guarded is the guard's child.
type guarded struct {
	pid   int
	pidfd int // -1 where the kernel has none
	link  *guardLink
	timer *guardTimer
}

// startSelf executes this program again. The child gets a process group of its
// own, so that a signal from the terminal reaches it once: through the guard.
func startSelf(role Role) (*guarded, error) {
	link, theirs, err := newGuardLink()
	if err != nil {
		return nil, fmt.Errorf("make the guard's lifeline: %w", err)
	}
	defer func() { _ = unix.Close(theirs) }()
	g := &guarded{pidfd: -1, link: link}
	if g.timer, err = newGuardTimer(); err != nil {
		link.close()
		return nil, fmt.Errorf("make the guard's timer: %w", err)
	}
	const linkFD, timerFD = 3, 4 // in the child: their places in Files
	g.pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), lifelineEnv(role, linkFD, timerFD)),
		Files: []uintptr{0, 1, 2, uintptr(theirs), uintptr(g.timer.fd)},
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &g.pidfd},
	})
	if err != nil {
		g.close()
		return nil, agentNotStarted(err)
	}
	return g, nil
}

func (g *guarded) close() {
	g.link.close()
	g.timer.close()
	if g.pidfd >= 0 {
		_ = unix.Close(g.pidfd)
	}
}

// signal goes through the pidfd, which never means a later process, unless the
// kernel or a container's filter has none. A stopped child acts on it once it is continued.
func (g *guarded) signal(sig syscall.Signal) {
	for _, s := range []syscall.Signal{sig, syscall.SIGCONT} {
		if g.pidfd >= 0 {
			if err := unix.PidfdSendSignal(g.pidfd, s, nil, 0); err == nil || errors.Is(err, unix.ESRCH) {
				continue
			}
		}
		_ = syscall.Kill(g.pid, s)
	}
}

// wait reaps whatever ends until it is the guarded child.
func (g *guarded) wait() procs.Exit {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return procs.Exit{PID: g.pid, Code: 1, StartErr: err}
		case pid != g.pid:
		case status.Signaled():
			return procs.Exit{PID: pid, Signal: status.Signal(), CoreDumped: status.CoreDump(), At: time.Now()}
		default:
			return procs.Exit{PID: pid, Code: status.ExitStatus(), At: time.Now()}
		}
	}
}

// Supported reports whether [Run] works on this system.
func Supported() bool { return true }

// lastWord is how long a guard that could end waits for a console to take what it said.
const lastWord = time.Second

// lastWords are said beside the work, because a console may block.
type lastWords struct{ said sync.WaitGroup }

func (w *lastWords) add(say func()) { w.said.Go(say) }

func (w *lastWords) wait() {
	all := make(chan struct{})
	go func() {
		defer close(all)
		w.said.Wait()
	}()
	select {
	case <-all:
	case <-time.After(lastWord):
	}
}

// guardResources makes what a guard needs of threads, and returns a [*ResourceError] where it may not have enough open
// files.
func guardResources() error {
	if problem := limits.CheckOpenFiles(); problem != "" {
		return &procs.ResourceError{Problem: problem, Err: syscall.EMFILE}
	}
	limits.ReserveThreads(limits.GuardThreads)
	return nil
}

// agentNotStarted is the error of a guard that could not start this program again.
func agentNotStarted(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &procs.ResourceError{Problem: "start the agent: there is no /proc/self/exe: /proc is not mounted, or belongs to another pid namespace; mount it", Err: err}
	case errors.Is(err, syscall.EAGAIN):
		return &procs.ResourceError{Problem: fmt.Sprintf("start the agent: %v", limits.ExplainFork(err)), Err: err}
	default:
		return fmt.Errorf("start the agent: %w", err)
	}
}
