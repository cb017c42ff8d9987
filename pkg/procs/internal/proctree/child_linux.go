package proctree

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BecomeSubreaper makes orphaned descendants become children of this process.
func BecomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// childInfo is the layout that waitid fills in for a child on 64-bit architectures: siginfo_t's _sigchld.
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

// coreFlag is the bit of a wait status that reports a core dump (wait(2)).
const coreFlag = 0x80

// waitChild calls waitid for one child, without reaping it.
func waitChild(pid, options int) (childInfo, error) {
	var info childInfo
	for {
		err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|options, nil)
		if !errors.Is(err, unix.EINTR) {
			return info, err
		}
	}
}

// AwaitExit blocks until the child pid has exited, and leaves it a zombie.
func AwaitExit(pid int) (syscall.WaitStatus, error) {
	info, err := waitChild(pid, 0)
	switch {
	case err != nil:
		return 0, err
	case info.code == cldExited:
		return syscall.WaitStatus(info.status << 8), nil
	case info.code == cldDumped:
		return syscall.WaitStatus(info.status | coreFlag), nil
	default:
		return syscall.WaitStatus(info.status), nil
	}
}

// HasExited reports whether the child pid is a zombie.
func HasExited(pid int) bool {
	info, err := waitChild(pid, unix.WNOHANG)
	return err == nil && info.pid == int32(pid)
}

// Reap takes the exit status of a child that has exited, and reports whether it could. It cannot take the status of a
// child that a debugger traces.
func Reap(pid int) bool {
	for {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		if !errors.Is(err, syscall.EINTR) {
			return got == pid
		}
	}
}

// NoChildren reports whether this process has no child. A subreaper without children has no descendants either.
func NoChildren() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// AdoptedChildren lists the children of this process, dead or alive, that are not kept and not in its session.
// Children in its session were started by other code of this program, which waits for them.
func AdoptedChildren(kept func(pid int) bool) ([]Process, error) {
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
	var adopted []Process
	ours := ProcIsOurs()
	for _, pid := range pids {
		if p, ok := readChild(pid, ours); ok && p.Session != session {
			adopted = append(adopted, p)
		}
	}
	return adopted, nil
}

// ReadChild reads the child pid. ok is false if it is no longer a child.
func ReadChild(pid int) (p Process, ok bool) { return readChild(pid, ProcIsOurs()) }

// readChild reads a child from /proc, if /proc is ours. If the child is hidden there (a program with another user's
// rights, under hidepid), it returns what waitid(2) and getsid(2) report.
func readChild(pid int, procOurs bool) (Process, bool) {
	if procOurs {
		if p, ok := Read(pid); ok {
			return p, true
		}
	}
	info, err := waitChild(pid, unix.WNOHANG)
	if err != nil { // it is no longer a child
		return Process{}, false
	}
	session, err := unix.Getsid(pid)
	if err != nil {
		return Process{}, false
	}
	p := Process{PID: pid, PPID: os.Getpid(), Session: session, State: '?', Threads: 1, Comm: "hidden by /proc"}
	if info.pid == int32(pid) {
		p.State = 'Z'
	}
	return p, true
}

// hiddenChildren lists the children of this process that /proc does not show.
func hiddenChildren() []Process {
	var hidden []Process
	pids, _ := childPIDs(func(int) bool { return true }) // the caller repeats the call
	ours := ProcIsOurs()
	for _, pid := range pids {
		if p, ok := readChild(pid, ours); ok && p.hidden() {
			hidden = append(hidden, p)
		}
	}
	return hidden
}
