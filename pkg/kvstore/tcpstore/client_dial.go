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
	firstPause     = 10 * time.Millisecond // between two attempts; it doubles
	longestPause   = time.Second
	attemptTimeout = 10 * time.Second // for a server to accept a connection and to answer the handshake
	joinInterval   = 10 * time.Millisecond
)

// initKey is the key under which torch's stores count the workers that have joined. It has no keyPrefix.
const initKey = "init/"

// Dial connects to the TCPStore server at addr, HOST:PORT. It retries until ctx ends, with pauses that grow from 10 ms
// to 1 s, because the server may start later than its clients and its name may resolve later. The error names the
// address, the number of attempts and the last failure. It is an ErrConnection and, after a deadline, an ErrTimeout.
// Dial fails at once if addr is not valid, or if the peer does not reply as a TCPStore does (ErrProtocol).
//
// With ClientOptions.Workers, Dial also joins the workers. It does so once only, so that no worker is counted twice.
func Dial(ctx context.Context, addr string, opts ClientOptions) (*Client, error) {
	if err := checkAddr(addr); err != nil {
		return nil, fmt.Errorf("connect to store: %w", err)
	}
	return start(ctx, newClient(addr, opts))
}

// start connects c and joins the workers.
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

// dialWithRetry makes the first connection.
func (c *Client) dialWithRetry(ctx context.Context) error {
	var last error
	pause := firstPause
	for tries := 1; ; tries++ {
		err := c.dialOnce(ctx)
		if err == nil || errors.Is(err, kvstore.ErrProtocol) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err // an attempt that ctx cut short says less than the one before
		}
		// The random factor of 0.5 to 1.5 spreads clients that start together.
		if !sleep(ctx, pause/2+rand.N(pause)) {
			// last is not wrapped: the timeout of one attempt is not that of ctx.
			return fmt.Errorf("connect to store %s: %w, tried %d times, last error: %s: %w",
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

// join counts this client among the workers and, on the host, waits for the others.
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
			return fmt.Errorf("wait for %d workers at store %s: key %q: %w: %w",
				c.opts.Workers, c.addr, initKey, kvstore.ErrProtocol, err)
		}
		if joined >= int64(c.opts.Workers) {
			return nil
		}
		if !sleep(ctx, joinInterval) {
			return fmt.Errorf("wait for %d workers at store %s, %d joined: %w",
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
