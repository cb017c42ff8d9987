package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// loop is a client with many connections to one server, on one thread: an epoll loop that costs less than any
// server it measures. Not for concurrent use.
type loop struct {
	epoll int
	conns []conn
	base  time.Time
	in    [4096]byte
}

// conn sends the steps of one operation one after the other, each when the one before has been answered.
type conn struct {
	fd         int
	connecting bool
	steps      []step
	next       int           // of steps
	missing    int           // bytes of the answer
	start      time.Duration // when the operation began, since loop.base
}

// patience is how long a loop waits for the next answer of any connection.
const patience = 20 * time.Second

// dial begins n connections; which ones are made shows in the first run.
func dial(port, n int) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	l := &loop{epoll: epoll, conns: make([]conn, 0, n), base: time.Now()}
	for i := range n {
		fd, err := connect(port)
		if err == nil {
			l.conns = append(l.conns, conn{fd: fd, connecting: true})
			err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(i)})
		}
		if err != nil {
			l.close()
			return nil, fmt.Errorf("connection %d to port %d: %w", i, port, err)
		}
	}
	return l, nil
}

func connect(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(l.epoll)
}

// run lets every connection do the operation that plan gives it. When one is done, again gets the time that it took
// and says whether to do the same once more. run returns when no connection has anything to do.
func (l *loop) run(plan func(conn int) []step, again func(took time.Duration) bool) error {
	for i := range l.conns {
		c := &l.conns[i]
		c.steps, c.next, c.start = plan(i), 0, time.Since(l.base)
		if !c.connecting {
			if err := c.send(); err != nil {
				return err
			}
		}
	}
	events := make([]unix.EpollEvent, 512)
	for left := len(l.conns); left > 0; {
		n, err := unix.EpollWait(l.epoll, events, int(patience.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("epoll: %w", err)
		case n == 0:
			return fmt.Errorf("%d of %d connections had no answer for %v", left, len(l.conns), patience)
		}
		for _, e := range events[:n] {
			c := &l.conns[e.Fd]
			done, err := l.advance(c, e.Fd)
			if err != nil {
				return fmt.Errorf("connection %d: %w", e.Fd, err)
			}
			if !done {
				continue
			}
			now := time.Since(l.base)
			if !again(now - c.start) {
				left--
				continue
			}
			c.next, c.start = 0, now
			if err := c.send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// each lets every connection do its operation once.
func (l *loop) each(plan func(conn int) []step) error {
	return l.run(plan, func(time.Duration) bool { return false })
}

// advance deals with one event, and tells whether the operation is done.
func (l *loop) advance(c *conn, index int32) (bool, error) {
	if c.connecting {
		return false, l.connected(c, index)
	}
	n, err := unix.Read(c.fd, l.in[:])
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, errors.New("the server closed it")
	case n > c.missing:
		return false, fmt.Errorf("%d bytes where %d were due", n, c.missing)
	}
	c.missing -= n
	if c.missing > 0 {
		return false, nil
	}
	c.next++
	if c.next == len(c.steps) {
		return true, nil
	}
	return false, c.send()
}

// connected ends the making of a connection, and begins its operation.
func (l *loop) connected(c *conn, index int32) error {
	code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.connecting = false
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: index}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return c.send()
}

// send sends the request of the next step. Requests are far smaller than a socket's buffer, and wait for no other.
// A step without a request waits for an answer to an earlier one.
func (c *conn) send() error {
	s := c.steps[c.next]
	c.missing = s.answer
	if len(s.request) == 0 {
		return nil
	}
	n, err := unix.Write(c.fd, s.request)
	if err == nil && n < len(s.request) {
		err = fmt.Errorf("took %d of %d bytes", n, len(s.request))
	}
	return err
}
