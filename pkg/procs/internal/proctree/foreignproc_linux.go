package proctree

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where /proc is missing, or was mounted for another pid namespace (unshare --pid without --mount-proc), its numbers
// mean other processes to kill and waitid. Then nothing that /proc says of a pid is used. The kernel still says of
// each pid whether it is a child of this process; a child's pid cannot be reused before this process reaps it. A
// subreaper that kills its children adopts theirs, so generation by generation it reaches every descendant.

// errForeignProc says that /proc cannot tell which processes there are.
var errForeignProc = errors.New("look for processes: /proc is missing or belongs to another pid namespace")

// ProcIsOurs reports whether /proc shows the processes of this pid namespace.
func ProcIsOurs() bool {
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && oneNamespace(status)
}

// oneNamespace reports whether /proc/self/status (proc(5)) was read in the reader's own pid namespace. NSpid has the
// process's pid in each namespace from that of /proc down to its own: the same number twice is still two namespaces.
// Kernels before 4.1, and those without pid namespaces, have no such line.
func oneNamespace(status []byte) bool {
	for line := range bytes.Lines(status) {
		if pids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			return len(bytes.Fields(pids)) == 1
		}
	}
	return true
}

// mostPIDs is the kernel's own limit on pids, PID_MAX_LIMIT, which a new pid namespace begins with.
const mostPIDs = 1 << 22

// probeChildPIDs lists the children of this process that are wanted, zombies included, without /proc: it asks the
// kernel about one pid after another. Pids are given out in ascending order, so it begins with those up to the last
// one given out. Only where none of them is wanted it asks about the rest, since the numbers may have begun anew:
// 4 million take 1.5 s.
func probeChildPIDs(wanted func(pid int) bool) []int {
	last := lastPID()
	if found := probeRange(1, last, wanted); len(found) > 0 || NoChildren() {
		return found
	}
	return probeRange(last+1, mostPIDs, wanted)
}

// lastPID is the pid that was given out last in the namespace of this process, whatever /proc belongs to.
func lastPID() int {
	data, err := os.ReadFile("/proc/sys/kernel/ns_last_pid")
	if n, bad := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && bad == nil && n > 0 {
		return min(n, mostPIDs)
	}
	return mostPIDs
}

// probeRange is probeChildPIDs for the pids from first to last.
func probeRange(first, last int, wanted func(pid int) bool) (pids []int) {
	var info childInfo
	for pid := first; pid <= last; pid++ {
		// As waitChild, without telling the scheduler each time: with WNOHANG it does not block.
		_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, 0, 0)
		if errno == 0 && wanted(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// FirstDeadOrphan returns a child that has exited and is neither kept nor in this process's session, or 0. It sees
// only what stands first among the children that have exited.
func FirstDeadOrphan(kept func(pid int) bool) int {
	var info childInfo
	err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	pid := int(info.pid)
	if err != nil || pid == 0 || kept(pid) {
		return 0
	}
	own, err1 := unix.Getsid(0)
	theirs, err2 := unix.Getsid(pid)
	if errors.Join(err1, err2) != nil || own == theirs {
		return 0
	}
	return pid
}
