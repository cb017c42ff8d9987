package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// client has many connections to one server, on one thread: an epoll loop that costs less than any server it measures.
// It is not safe for concurrent use.
type client struct {
	epoll int
	conns []conn
	base  time.Time
	in    [4096]byte
}

// conn sends the steps of one operation, each after the reply to the one before.
type conn struct {
	fd         int
	connecting bool
	steps      []step
	next       int           // index into steps
	missing    int           // bytes of the reply
	start      time.Duration // start of the operation, since client.base
}

// replyTimeout is how long a client waits for the next reply on any connection.
const replyTimeout = 20 * time.Second

// dial begins n connections. The first run shows which of them succeed.
func dial(port, n int) (*client, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	l := &client{epoll: epoll, conns: make([]conn, 0, n), base: time.Now()}
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

func (l *client) close() {
	for _, c := range l.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(l.epoll)
}

// run performs on every connection the operation that plan returns. When one is done, again receives its duration and
// returns whether to repeat it. run returns when no connection has an operation left.
func (l *client) run(plan func(conn int) []step, again func(took time.Duration) bool) error {
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
		n, err := unix.EpollWait(l.epoll, events, int(replyTimeout.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("epoll: %w", err)
		case n == 0:
			return fmt.Errorf("%d of %d connections had no reply for %v", left, len(l.conns), replyTimeout)
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

// each performs one operation on every connection.
func (l *client) each(plan func(conn int) []step) error {
	return l.run(plan, func(time.Duration) bool { return false })
}

// advance handles one event, and reports whether the operation is done.
func (l *client) advance(c *conn, index int32) (bool, error) {
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
		return false, fmt.Errorf("got %d bytes, want at most %d", n, c.missing)
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

// connected completes a connection and begins its operation.
func (l *client) connected(c *conn, index int32) error {
	code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.connecting = false
	event := &unix.EpollEvent{Events: unix.EPOLLIN, Fd: index}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return c.send()
}

// send sends the request of the next step. Requests are far smaller than a socket's buffer, so a write takes all. A
// step without a request waits for the reply to an earlier one.
func (c *conn) send() error {
	s := c.steps[c.next]
	c.missing = s.answer
	if len(s.request) == 0 {
		return nil
	}
	n, err := unix.Write(c.fd, s.request)
	if err == nil && n < len(s.request) {
		err = fmt.Errorf("wrote %d of %d bytes", n, len(s.request))
	}
	return err
}
