package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/siginfo"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/internal/limits"
)

// child is the process that the guard started: the agent, or a guard below this one.
type child struct {
	pid    int
	pidfd  int // -1 where the kernel has none
	link   *guardLink
	timer  *guardTimer
	death  deathPipe
	record int // the file of the agent's record, or -1
}

// startChild executes this program again. The child gets a process group of its own, so that a signal from the terminal
// reaches it once: through the guard.
func startChild(role Role) (*child, error) {
	link, theirs, err := newGuardLink()
	if err != nil {
		return nil, fmt.Errorf("make the guard's lifeline: %w", err)
	}
	defer func() { _ = unix.Close(theirs) }()
	c := &child{pidfd: -1, link: link, death: deathPipe{-1, -1}, record: -1}
	if c.timer, err = newGuardTimer(); err != nil {
		link.close()
		return nil, fmt.Errorf("make the guard's timer: %w", err)
	}
	if c.death, err = newDeathPipe(); err != nil {
		c.close()
		return nil, fmt.Errorf("make the guard's pipe: %w", err)
	}
	defer c.death.closeWrite()
	// The files in the child, as their order in Files says.
	const linkFD, timerFD, deathFD = 3, 4, 5
	recordFD, files := -1, []uintptr{0, 1, 2, uintptr(theirs), uintptr(c.timer.fd), uintptr(c.death.write)}
	if c.record = newRecordFile(); c.record >= 0 {
		recordFD, files = len(files), append(files, uintptr(c.record))
	}
	c.pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), lifelineEnv(role, linkFD, timerFD, deathFD, recordFD)),
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &c.pidfd},
	})
	if err != nil {
		c.close()
		return nil, agentNotStarted(err)
	}
	return c, nil
}

func (c *child) close() {
	c.link.close()
	c.timer.close()
	c.death.close()
	if c.record >= 0 {
		_ = unix.Close(c.record)
	}
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
}

// signal sends sig through the pidfd, which never refers to a later process, or by pid if the kernel or a container's
// filter has no pidfd. The child learns where the guard's own came from. It gets SIGCONT too, because a stopped child
// acts on sig only once it continues.
func (c *child) signal(sig syscall.Signal, origin siginfo.Origin) {
	info := origin.Siginfo(sig)
	for _, s := range []syscall.Signal{sig, syscall.SIGCONT} {
		if c.pidfd >= 0 {
			if err := unix.PidfdSendSignal(c.pidfd, s, info, 0); err == nil || errors.Is(err, unix.ESRCH) {
				info = nil
				continue
			}
		}
		_ = syscall.Kill(c.pid, s)
	}
}

// wait reaps every child that exits, until the started child does.
func (c *child) wait() procs.Exit {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return procs.Exit{PID: c.pid, Code: 1, StartErr: err}
		case pid != c.pid:
		case status.Signaled():
			return procs.Exit{PID: pid, Signal: status.Signal(), CoreDumped: status.CoreDump(), At: time.Now()}
		default:
			return procs.Exit{PID: pid, Code: status.ExitStatus(), At: time.Now()}
		}
	}
}

// reserveResources makes the threads that a guard needs. It returns a [*procs.ResourceError] if the guard may not have
// enough open files.
func reserveResources() error {
	if problem := limits.CheckOpenFiles(); problem != "" {
		return &procs.ResourceError{Problem: problem, Err: syscall.EMFILE}
	}
	limits.ReserveThreads(limits.GuardThreads)
	return nil
}

// agentNotStarted returns the error of a guard that could not start this program again.
func agentNotStarted(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &procs.ResourceError{
			Problem: "start the agent: /proc/self/exe does not exist because /proc is not mounted " +
				"or belongs to another pid namespace; mount /proc",
			Err: err,
		}
	case errors.Is(err, syscall.EAGAIN):
		return &procs.ResourceError{Problem: fmt.Sprintf("start the agent: %v", limits.ExplainFork(err)), Err: err}
	default:
		return fmt.Errorf("start the agent: %w", err)
	}
}
