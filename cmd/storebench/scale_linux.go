package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// scale is the result of one server with many connections.
type scale struct {
	served   float64 // seconds from the start of manyConns connections until all have had a reply to an ADD
	rss, pss float64 // KB of the process for each idle connection
	released float64 // seconds from a SET until manyWaiters clients that wait for its key are released
}

const (
	manyConns   = 5000
	manyWaiters = 10000
)

// measureScale measures a new server, because memory of an earlier load would hide that of the connections.
func measureScale(ctx context.Context, name string, command []string) (scale, error) {
	s, err := start(ctx, name, command)
	if err != nil {
		return scale{}, err
	}
	defer s.stop()
	var c scale
	if err := idleConns(s, &c); err != nil {
		return c, fmt.Errorf("%d connections: %w", manyConns, err)
	}
	if name == floor { // it stores no keys
		return c, nil
	}
	if c.released, err = release(s); err != nil {
		return c, fmt.Errorf("%d waiters: %w", manyWaiters, err)
	}
	return c, nil
}

func idleConns(s *server, c *scale) error {
	if err := awaitIdle(s); err != nil {
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
	if err := awaitIdle(s); err != nil {
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
	// A WAIT has no reply until it is released. The server has read all of them when it is idle.
	if err := awaitIdle(s); err != nil {
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

// awaitIdle returns when the server has used almost no CPU time for a while.
func awaitIdle(s *server) error {
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
