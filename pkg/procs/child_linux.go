package procs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes orphaned descendants children of this process.
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// forkWorker forks and executes one worker on the calling thread. The kernel
// kills the worker when that thread, and so this process, ends.
func forkWorker(path string, w *worker) (pid int, err error) {
	restore, err := bindThread(w.spec.CPUs)
	if err != nil {
		return 0, err
	}
	defer restore()
	return w.forkExec(path, &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL})
}

// bindThread restricts the calling thread, and what it forks, to cpus.
func bindThread(cpus []int) (restore func(), err error) {
	if cpus == nil {
		return func() {}, nil
	}
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, err
	}
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, err
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}

// childInfo is the layout that waitid fills in for a child on the 64-bit
// architectures this builds for: siginfo_t's _sigchld.
type childInfo struct {
	signo, errno, code int32
	_                  int32
	pid, uid           int32
	status             int32
	_                  [128 - 7*4]byte
}

// Values of childInfo.code (waitid(2)).
const (
	cldExited = 1
	cldDumped = 3
)

// waitChild is waitid for one child, without reaping it.
func waitChild(pid, options int) (childInfo, error) {
	var info childInfo
	for {
		err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|options, nil)
		if !errors.Is(err, unix.EINTR) {
			return info, err
		}
	}
}

// awaitExit blocks until the child pid has exited and leaves it a zombie.
func awaitExit(pid int) Exit {
	info, err := waitChild(pid, 0)
	switch {
	case err != nil:
		// Somebody else reaped our child: its status is lost.
		return Exit{Code: 1, StartErr: err}
	case info.code == cldExited:
		return Exit{Code: int(info.status)}
	default:
		return Exit{Signal: syscall.Signal(info.status), CoreDumped: info.code == cldDumped}
	}
}

// hasExited reports whether the child pid is a zombie already.
func hasExited(pid int) bool {
	info, err := waitChild(pid, unix.WNOHANG)
	return err == nil && info.pid == int32(pid)
}

// reap takes the exit status of a child that has exited; it reports whether it
// could. What a tracer holds it cannot.
func reap(pid int) bool {
	for {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got == pid
		}
	}
}

// noChildren reports whether this process has no child at all; for a subreaper
// that means no descendant either.
func noChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// adoptedChildren lists the children of this process, dead or alive, that are the
// job's and not kept. Children in this process's own session were started by
// somebody else here, who waits for them.
func adoptedChildren(kept func(pid int) bool) ([]process, error) {
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, fmt.Errorf("get the session: %w", err)
	}
	pids, err := childPIDs(func(pid int) bool {
		theirs, err := unix.Getsid(pid)
		return !kept(pid) && (err != nil || theirs != session)
	})
	if err != nil {
		return nil, err
	}
	var adopted []process
	ours := procIsOurs()
	for _, pid := range pids {
		if p, ok := readChild(pid, ours); ok && p.session != session {
			adopted = append(adopted, p)
		}
	}
	return adopted, nil
}

// readChild reads a child from /proc, if [procIsOurs], or, where it is hidden there (a program with the rights of another
// user, under hidepid), tells what the kernel says of every child.
func readChild(pid int, procOurs bool) (process, bool) {
	if procOurs {
		if p, ok := readProcess(pid); ok {
			return p, true
		}
	}
	info, err := waitChild(pid, unix.WNOHANG)
	if err != nil { // it is no child any more
		return process{}, false
	}
	session, err := unix.Getsid(pid)
	if err != nil {
		return process{}, false
	}
	p := process{pid: pid, ppid: os.Getpid(), session: session, state: '?', threads: 1, comm: "hidden by /proc"}
	if info.pid == int32(pid) {
		p.state = 'Z'
	}
	return p, true
}

// hiddenChildren lists the children of this process that /proc does not show.
func hiddenChildren() []process {
	var hidden []process
	pids, _ := childPIDs(func(int) bool { return true }) // the caller looks again and again
	ours := procIsOurs()
	for _, pid := range pids {
		if p, ok := readChild(pid, ours); ok && p.hidden() {
			hidden = append(hidden, p)
		}
	}
	return hidden
}
