package proctree

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errForeignProc says that /proc does not show the processes of this pid namespace.
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

// oneNamespace reports whether /proc/self/status (proc(5)) was read in the reader's own pid namespace. Its line NSpid
// has the process's pid in each namespace, from that of /proc down to its own; the same number twice still means two
// namespaces. Kernels before 4.1 and kernels without pid namespaces have no such line.
func oneNamespace(status []byte) bool {
	return len(strings.Fields(StatusField(status, "NSpid:"))) <= 1
}

// maxPID is the kernel's own limit on pids, PID_MAX_LIMIT. A new pid namespace starts with it.
const maxPID = 1 << 22

// probeChildPIDs is childPIDs without /proc: it asks the kernel about one pid after another. The kernel assigns pids
// in ascending order, so it first asks about those up to the last assigned pid. Only if none of them is wanted it
// asks about the rest, because the numbers may have wrapped around. 4 million pids take 1.5 s.
func probeChildPIDs(wanted func(pid int) bool) []int {
	last := lastPID()
	if found := probeRange(1, last, wanted); len(found) > 0 || NoChildren() {
		return found
	}
	return probeRange(last+1, maxPID, wanted)
}

// lastPID returns the last pid that was assigned in the namespace of this process, whatever namespace /proc shows.
func lastPID() int {
	data, err := os.ReadFile("/proc/sys/kernel/ns_last_pid")
	if n, bad := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && bad == nil && n > 0 {
		return min(n, maxPID)
	}
	return maxPID
}

// probeRange is probeChildPIDs for the pids from first to last.
func probeRange(first, last int, wanted func(pid int) bool) (pids []int) {
	var info childInfo
	for pid := first; pid <= last; pid++ {
		// This is waitChild without the notice to Go's scheduler for each call: with WNOHANG it does not block.
		_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, 0, 0)
		if errno == 0 && wanted(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// FirstDeadOrphan returns a child that has exited and is neither kept nor in this process's session, or 0. It sees
// only the first of the exited children.
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
