package tcpstore

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller tells which sockets can be read from or written to, through epoll, level-triggered. Only wake may
// be called while another of its methods runs.
type poller struct {
	epfd   int
	wakeFD int // an eventfd
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wakeFD, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epfd)
		return nil, err
	}
	p := &poller{epfd: epfd, wakeFD: wakeFD}
	if err := p.add(wakeFD); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() {
	_ = unix.Close(p.wakeFD)
	_ = unix.Close(p.epfd)
}

// add waits for fd to become readable. Closing fd ends that.
func (p *poller) add(fd int) error {
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// remove waits for fd no more.
func (p *poller) remove(fd int) error {
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, nil)
}

// turn waits for fd to become writable, instead of readable, or the other way round.
func (p *poller) watchWrite(fd int, toWrite bool) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if toWrite {
		event.Events = unix.EPOLLOUT
	}
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_MOD, fd, &event)
}

// wake makes the wait under way, or the next one, return.
func (p *poller) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(p.wakeFD, one[:]) // it fails only when it is written enough already
}

// wait waits for at least one event, for timeout at most; a negative one is for ever. It returns how many there
// are, and whether there may be more.
func (p *poller) wait(timeout time.Duration) (n int, more bool, err error) {
	// Under load there is always something to do, and a system call that cannot block need not tell the
	// scheduler.
	r, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.epfd),
		uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), 0, 0, 0)
	if n = int(r); errno != 0 || n == 0 {
		ms := -1
		if timeout >= 0 {
			ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
		}
		n, err = unix.EpollWait(p.epfd, p.events[:], ms)
		if errors.Is(err, unix.EINTR) {
			return 0, true, nil
		}
	}
	return n, n == len(p.events), err
}

// fd returns the socket of event i, or -1 for a wake.
func (p *poller) fd(i int) int {
	fd := int(p.events[i].Fd)
	if fd == p.wakeFD {
		var count [8]byte
		_, _ = unix.Read(fd, count[:])
		return -1
	}
	return fd
}

// sockRead reads what is there. fd must not block, and so the scheduler need not know.
func sockRead(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sockWrite writes what fits. It raises no SIGPIPE. As for sockRead, fd must not block; b must not be empty.
func sockWrite(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// wouldBlock tells whether err only means: not now.
func wouldBlock(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}
