package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

const (
	firstPause     = 10 * time.Millisecond // between two attempts to connect; it doubles
	longestPause   = time.Second
	attemptTimeout = 10 * time.Second // for a server to accept a connection and to answer the greeting
	joinInterval   = 10 * time.Millisecond
)

// initKey is where torch's stores count the workers that have joined. It has no keyPrefix.
const initKey = "init/"

// Dial connects to the TCPStore server at addr, HOST:PORT. It tries until ctx ends, with pauses that grow
// from 10 ms to 1 s: the server may start later than its clients, and a host's name may come to be known later. The error
// names the address, how often it was tried and what came of it last, and is an ErrConnection and, after a
// deadline, an ErrTimeout. Not tried again are an address that cannot be one and a peer that answers as no
// TCPStore does (ErrProtocol).
//
// With ClientOptions.Workers Dial also joins the workers. That is not tried twice, lest a worker be counted twice.
func Dial(ctx context.Context, addr string, opts ClientOptions) (*Client, error) {
	if err := checkAddr(addr); err != nil {
		return nil, fmt.Errorf("connect to store: %w", err)
	}
	return start(ctx, newClient(addr, opts))
}

// start lets c connect and join.
func start(ctx context.Context, c *Client) (*Client, error) {
	err := c.dialWithRetry(ctx)
	if err == nil && c.opts.Workers > 0 {
		err = c.join(ctx)
	}
	if err != nil {
		_ = c.Close() // never fails
		return nil, err
	}
	return c, nil
}

// reach makes the first connection.
func (c *Client) dialWithRetry(ctx context.Context) error {
	var last error
	pause := firstPause
	for tries := 1; ; tries++ {
		err := c.dialOnce(ctx)
		if err == nil || errors.Is(err, kvstore.ErrProtocol) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err // a last attempt that ctx has cut short says less than the one before
		}
		// Half of the pause to one and a half: clients that start together come apart.
		if !sleep(ctx, pause/2+rand.N(pause)) {
			// last is not in the chain: one attempt's time-out is not that of ctx.
			return fmt.Errorf("connect to store %s: %w, tried %d times, at last: %s: %w",
				c.addr, kvstore.ErrConnection, tries, last.Error(), kvstore.ContextError(ctx))
		}
		pause = min(2*pause, longestPause)
	}
}

func (c *Client) dialOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	l, err := c.connect(ctx)
	if err == nil {
		c.push(l)
	}
	return err
}

// join counts this client among the workers and, for the host, waits for the others.
func (c *Client) join(ctx context.Context) error {
	key := []string{initKey}
	if _, err := c.call(ctx, query{op: opAdd, keys: key, number: 1, raw: true}); err != nil {
		return fmt.Errorf("join as one of %d workers: %w", c.opts.Workers, err)
	}
	for c.opts.Host {
		a, err := c.call(ctx, query{op: opWait, keys: key, raw: true}, query{op: opGet, keys: key, raw: true})
		if err != nil {
			return fmt.Errorf("wait for %d workers: %w", c.opts.Workers, err)
		}
		joined, err := strconv.ParseInt(string(a.values[0]), 10, 64)
		if err != nil {
			return fmt.Errorf("wait for %d workers at store %s: key %q: %w: %w", c.opts.Workers, c.addr, initKey, kvstore.ErrProtocol, err)
		}
		if joined >= int64(c.opts.Workers) {
			return nil
		}
		if !sleep(ctx, joinInterval) {
			return fmt.Errorf("wait for %d workers at store %s, of which %d have joined: %w",
				c.opts.Workers, c.addr, joined, kvstore.ContextError(ctx))
		}
	}
	return nil
}

// sleep returns false if ctx ends before d is over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
