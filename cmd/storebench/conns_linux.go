package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// crowd is what one server did with many connections.
type crowd struct {
	served   float64 // seconds until manyConns connections, begun all at once, have had an ADD answered
	rss, pss float64 // KB of the process for each of these, idle
	released float64 // seconds from a SET until manyWaiters clients that wait for its key know
}

const (
	manyConns   = 5000
	manyWaiters = 10000
)

// measureCrowd measures a server that has served nobody yet: memory that it has from earlier would not show.
func measureCrowd(ctx context.Context, name string, command []string) (crowd, error) {
	s, err := start(ctx, name, command)
	if err != nil {
		return crowd{}, err
	}
	defer s.stop()
	var c crowd
	if err := idleConns(s, &c); err != nil {
		return c, fmt.Errorf("%d connections: %w", manyConns, err)
	}
	if name == floor { // keeps no keys
		return c, nil
	}
	if c.released, err = release(s); err != nil {
		return c, fmt.Errorf("%d waiters: %w", manyWaiters, err)
	}
	return c, nil
}

func idleConns(s *server, c *crowd) error {
	if err := settle(s); err != nil {
		return err
	}
	rss, pss, err := memory(s.pid)
	if err != nil {
		return err
	}
	began := time.Now()
	l, err := dial(s.port, manyConns)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.each(func(i int) []step { return []step{handshake(), add(keyOf(i))} }); err != nil {
		return err
	}
	c.served = time.Since(began).Seconds()
	if err := settle(s); err != nil {
		return err
	}
	c.rss, c.pss, err = memory(s.pid)
	c.rss = (c.rss - rss) / manyConns / 1000
	c.pss = (c.pss - pss) / manyConns / 1000
	return err
}

func release(s *server) (float64, error) {
	const key = "/go"
	waiters, err := dial(s.port, manyWaiters)
	if err != nil {
		return 0, err
	}
	defer waiters.close()
	other, err := dial(s.port, 1)
	if err != nil {
		return 0, err
	}
	defer other.close()
	shake := func(int) []step { return []step{handshake()} }
	if err := errors.Join(waiters.each(shake), other.each(shake)); err != nil {
		return 0, err
	}
	for _, c := range waiters.conns {
		if _, err := unix.Write(c.fd, wait(key).request); err != nil {
			return 0, err
		}
	}
	// A WAIT gives no sign that it was understood; a server that does nothing any more has understood all.
	if err := settle(s); err != nil {
		return 0, err
	}
	if n, err := unix.EpollWait(waiters.epoll, make([]unix.EpollEvent, 1), 0); n > 0 || err != nil {
		return 0, fmt.Errorf("a waiter was released before the SET (epoll: %w)", err)
	}
	began := time.Now()
	if _, err := unix.Write(other.conns[0].fd, set(key).request); err != nil {
		return 0, err
	}
	err = waiters.each(func(int) []step { return []step{{answer: 1}} })
	return time.Since(began).Seconds(), err
}

// settle returns when the server has used no CPU time to speak of for a while.
func settle(s *server) error {
	const while, still = 300 * time.Millisecond, time.Millisecond
	for range 50 {
		before, err := cpu(s.pid)
		if err != nil {
			return err
		}
		<-time.After(while)
		after, err := cpu(s.pid)
		if err != nil {
			return err
		}
		if after-before < still {
			return nil
		}
	}
	return errors.New("the server does not come to rest")
}
