package siginfo

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signals is how many numbers the arrays of the handler have room for.
const signals = 65

// What the handler, which is in assembly, has noted of each signal, and the handler of the Go runtime, which it calls.
// They are global, because a process has one handler for a signal. A sender is its pid in the lower half and its uid in
// the upper half, as in the siginfo.
var (
	kernel, sent   [signals]uint32
	codes          [signals]int32
	senders        [signals]uint64
	runtimeHandler uintptr
)

func handlerAddr() uintptr

// sigaction is the kernel's struct sigaction.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// Watcher notes where signals come from. The nil *Watcher knows nothing.
type Watcher struct{ before map[syscall.Signal]sigaction }

// Watch begins to note where these signals come from. It leaves out those that the Go runtime does not handle in this
// process, such as ignored ones. Close the watcher. Only one may be open.
func Watch(all ...syscall.Signal) *Watcher {
	w := &Watcher{before: make(map[syscall.Signal]sigaction)}
	for _, sig := range all {
		var action sigaction
		if setAction(sig, nil, &action) != 0 || action.handler <= 1 || action.handler == handlerAddr() {
			continue // SIG_DFL, SIG_IGN, or it is watched
		}
		atomic.StoreUintptr(&runtimeHandler, action.handler) // the same for all signals
		noting := action
		noting.handler = handlerAddr()
		if setAction(sig, &noting, nil) == 0 {
			w.before[sig] = action
		}
	}
	return w
}

func setAction(sig syscall.Signal, action, old *sigaction) syscall.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(action.mask), 0, 0)
	return errno
}

// Watches reports whether the watcher notes where such a signal comes from.
func (w *Watcher) Watches(sig syscall.Signal) bool {
	if w == nil {
		return false
	}
	_, ok := w.before[sig]
	return ok
}

// Take returns where the signals of that number came from since the last call. Of two that come at once the kernel and
// the runtime may deliver one.
func (w *Watcher) Take(sig syscall.Signal) Origin {
	if !w.Watches(sig) {
		return Origin{}
	}
	o := Origin{Kernel: int(atomic.SwapUint32(&kernel[sig], 0)), Sent: int(atomic.SwapUint32(&sent[sig], 0))}
	sender := atomic.LoadUint64(&senders[sig])
	o.PID, o.UID = int(int32(uint32(sender))), int(uint32(sender>>32))
	switch code := atomic.LoadInt32(&codes[sig]); {
	case o.Sent == 0:
	case code != siUser && code != siQueue && code != siTkill:
		o.Unnamed = true
	case o.PID == ofKernel:
		o.Passed = true
	case o.PID < 0:
		o.Unnamed = true
	default:
		return o
	}
	o.PID, o.UID = 0, 0
	return o
}

// Close restores the handlers of the runtime.
func (w *Watcher) Close() {
	if w == nil {
		return
	}
	for sig, action := range w.before {
		_ = setAction(sig, &action, nil) // it cannot fail
	}
	w.before = nil
}
