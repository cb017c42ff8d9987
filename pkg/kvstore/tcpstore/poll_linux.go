package tcpstore

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller reports which sockets are readable or writable, with epoll, level-triggered. Only wake may be called while
// another method runs.
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

// add watches fd for reading. Closing fd ends that.
func (p *poller) add(fd int) error {
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// remove stops watching fd.
func (p *poller) remove(fd int) error {
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, nil)
}

// watchWrite watches fd for writing instead of reading, or the other way round.
func (p *poller) watchWrite(fd int, toWrite bool) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if toWrite {
		event.Events = unix.EPOLLOUT
	}
	return unix.EpollCtl(p.epfd, unix.EPOLL_CTL_MOD, fd, &event)
}

// wake makes the wait in progress, or the next one, return.
func (p *poller) wake() {
	one := [8]byte{1}
	_, _ = unix.Write(p.wakeFD, one[:]) // it fails only if the counter is full, which also wakes
}

// wait waits for at least one event, up to timeout; a negative timeout is forever. It returns the number of events,
// and whether there may be more.
func (p *poller) wait(timeout time.Duration) (n int, more bool, err error) {
	// Under load there is usually an event. A raw system call, which does not inform the scheduler, is cheaper and
	// safe here because it cannot block.
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

// sockRead reads available bytes. fd must be nonblocking, so the scheduler need not know of the call.
func sockRead(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sockWrite writes as much as fits and raises no SIGPIPE. fd must be nonblocking, as for sockRead; b must not be
// empty.
func sockWrite(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// wouldBlock reports whether err means to try again later.
func wouldBlock(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}
