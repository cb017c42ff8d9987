package siginfo

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The codes of signals that processes send (bits/siginfo-consts.h).
const (
	siUser  = 0
	siQueue = -1
	siTkill = -6
)

// The pids in a siginfo of a signal that is passed on: the kernel has made it, or its sender is not known.
const (
	ofKernel = -1
	ofNobody = -2
)

// passed is the siginfo_t of a signal that is sent with a value. In it the kernel lets the sender choose pid and uid.
type passed struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	_                     [104]byte
}

// Siginfo returns a siginfo with which another process that uses this package learns the same origin, and does not take
// this process for the sender. It is for the system calls pidfd_send_signal and rt_sigqueueinfo.
func (o Origin) Siginfo(sig syscall.Signal) *unix.Siginfo {
	info := passed{signo: int32(sig), code: siQueue}
	switch {
	case o.Unnamed, o.Sent+o.Kernel == 0:
		info.pid = ofNobody
	case o.Passed, o.Sent == 0:
		info.pid = ofKernel
	default:
		info.pid, info.uid = int32(o.PID), uint32(o.UID)
	}
	return (*unix.Siginfo)(unsafe.Pointer(&info))
}
