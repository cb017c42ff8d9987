package coord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// run keeps the client connected until it ends. cc is its first connection.
func (c *Client) run(ctx context.Context, cc *clientConn) {
	for cc != nil {
		select {
		case <-cc.readDone:
			c.detach(cc)
			if errors.Is(cc.err, errMalformed) {
				c.lose(fmt.Errorf("%w: the store does not follow the protocol", ErrUnavailable))
			}
			cc = c.reconnect(ctx)
		case suspected := <-c.suspects:
			if suspected == cc && c.silent(cc) { // cc may have answered since
				cc = c.replace(ctx, cc)
			}
		}
	}
}

// reconnect connects again, first at once and then after reconnectDelay. It returns nil if the client has ended.
func (c *Client) reconnect(ctx context.Context) *clientConn {
	if c.Err() != nil || ctx.Err() != nil {
		return nil
	}
	c.mu.Lock()
	var plan addressPlan
	c.inform(&plan)
	since := c.brokenSince
	c.mu.Unlock()
	if got := c.search(ctx, plan, since, nil); got != nil {
		return c.attach(got)
	}
	return nil
}

// replace looks for a replacement of cc, on which a call gets no answer. The network path of cc may be gone for good
// while another path works. Or another member of the group may serve now, which TCP does not notice. cc stays open
// until then, because it may only be slow. replace returns the client's connection afterwards.
func (c *Client) replace(ctx context.Context, cc *clientConn) *clientConn {
	got := c.search(ctx, c.replacementPlan(cc), time.Now(), cc)
	if got == nil {
		return cc
	}
	c.detach(cc)
	return c.attach(got)
}

// replacementPlan returns the plan of replace. With one address, the plan is a single attempt. Otherwise the other
// addresses come first, and the present address comes as late as with one address: the store may be making all its
// clients wait.
func (c *Client) replacementPlan(cc *clientConn) addressPlan {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.allAddrs()
	plan := addressPlan{once: len(all) == 1}
	plan.addAll(all[1:], now)
	same := &plannedAddress{addr: all[0], due: now, reserve: true}
	if late := cc.lastFrame.Add(c.ttl / 4); late.After(now) {
		same.due = late
	}
	plan.list = append(plan.list, same)
	return plan
}

// search makes the attempts of plan until one has resumed the session. The pauses between attempts grow with the time
// elapsed since the given time. If old is not nil, it stays the client's connection. search then ends without a result
// when old ends, when old receives a frame and the client has other addresses, or when the plan is exhausted.
func (c *Client) search(ctx context.Context, plan addressPlan, since time.Time, old *clientConn) *established {
	r := newAttempts(ctx, plan, c.tryResume)
	var oldDone <-chan struct{}
	if old != nil {
		oldDone = old.readDone
	}
	for {
		again, more := r.begin()
		if !more {
			return r.stop(nil)
		}
		select {
		case result := <-r.results:
			r.ended(result, retryDelay(result.err, time.Since(since)))
			if result.got != nil {
				return r.stop(result.got)
			}
			c.searched(&r.plan, result.err)
		case <-again:
		case <-c.addrsChanged:
			c.mu.Lock()
			c.inform(&r.plan)
			c.mu.Unlock()
		case <-oldDone:
			if !errors.Is(old.err, errTaken) {
				return r.stop(nil) // reconnect tries again at once
			}
			oldDone, r.plan.once = nil, true // an attempt in progress has resumed the session
		case <-c.lost:
			return r.stop(nil)
		case <-ctx.Done():
			return r.stop(nil)
		}
		if old != nil && !r.plan.once && c.heardSince(old, since) {
			return r.stop(nil)
		}
	}
}

// searched records the result of an attempt. It ends the client if no attempt can ever succeed.
func (c *Client) searched(plan *addressPlan, err error) {
	c.mu.Lock()
	c.refused = plan.refusedSince()
	c.mu.Unlock()
	if errors.Is(err, ErrSessionLost) {
		c.lose(err)
	} else if denial := plan.denied(); denial != nil {
		c.lose(denial)
	}
}

// heardSince reports whether a frame has arrived on cc since the given time.
func (c *Client) heardSince(cc *clientConn, since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cc.lastFrame.After(since)
}

// leastDelay is the shortest pause between two attempts at an address.
const leastDelay = 20 * time.Millisecond

// reconnectDelay returns how long to wait before the next attempt. The delay is short at first, because the network may
// return at once. It grows with the time since the connection broke, when only a restarted store can help.
func reconnectDelay(broken time.Duration) time.Duration {
	least := leastDelay
	switch {
	case broken > 10*time.Second:
		least = 500 * time.Millisecond
	case broken > time.Second:
		least = 150 * time.Millisecond
	}
	return least + rand.N(3*least/2)
}

// elsewhereDelay is the shortest pause after a refusal with ReasonElsewhere. Such a refusal costs the member a TLS
// handshake, and when a store has ended, all its clients ask all members.
const elsewhereDelay = 100 * time.Millisecond

// retryDelay is reconnectDelay after an attempt that has failed with err.
func retryDelay(err error, broken time.Duration) time.Duration {
	delay := reconnectDelay(broken)
	failed, ok := errors.AsType[*DialError](err)
	if ok && failed.Obstacle == ObstacleElsewhere && delay < elsewhereDelay {
		return elsewhereDelay + rand.N(3*elsewhereDelay/2)
	}
	return delay
}

// tryResume makes one attempt to connect to addr and resume the session.
func (c *Client) tryResume(ctx context.Context, addr string) attemptResult {
	a := attempt{opts: c.opts.at(addr), token: c.token, instance: c.instance}
	got, err := a.open(ctx)
	result := attemptResult{addr: addr, got: got, err: err}
	var refused *RefusedError
	switch {
	case errors.Is(err, ErrReplaced):
		result.denial = fmt.Errorf("%w: the store at %s is gone: another instance, %s, runs there now",
			ErrReplaced, addr, a.instance)
	case errors.As(err, &refused) && a.believes(): // otherwise anybody may have sent the refusal
		result.denial = fmt.Errorf("%w: the store is gone: %s", ErrUnavailable, err.Error())
	}
	return result
}

// suspect requests a replacement of cc if the store has been silent on cc for answerTimeout.
func (c *Client) suspect(cc *clientConn) {
	if !c.silent(cc) {
		return
	}
	select {
	case c.suspects <- cc:
	default: // run is already replacing a connection
	}
}

// silent reports whether no frame has arrived on cc for answerTimeout.
func (c *Client) silent(cc *clientConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(cc.lastFrame) >= time.Duration(c.answerTimeout.Load())
}
