package coord

import (
	"slices"
	"time"
)

// SetAddrs sets the addresses, HOST:PORT, of the members of the store's group. The store may be at any of them, and
// always at DialOptions.Addr. When the connection breaks, or a call gets no answer, the client looks for the store at
// all of these addresses. DialOptions.Adapt adapts the options to the other addresses. Without SetAddrs the client
// knows only DialOptions.Addr and the latest address at which it had a session.
func (c *Client) SetAddrs(addrs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs = nil
	for _, addr := range addrs {
		if addr != c.opts.Addr && !slices.Contains(c.addrs, addr) {
			c.addrs = append(c.addrs, addr)
		}
	}
	c.setAnswerTimeout()
	signal(c.addrsChanged)
}

// expectTime is how long Expect has an effect.
const expectTime = time.Second

// Expect tells the client that the store is probably at addr now, according to a member of its group. If the client is
// looking for the store now or within a second, it tries this address at once.
func (c *Client) Expect(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected, c.expectedUntil = addr, time.Now().Add(expectTime)
	signal(c.addrsChanged)
}

// inform adds the client's known addresses of the store to a plan. mu is held.
func (c *Client) inform(plan *addressPlan) {
	now := time.Now()
	plan.addAll(c.allAddrs(), now)
	plan.expect(c.expected, now, c.expectedUntil)
}

// Addrs returns the addresses at which the store may be. The first is the address of the current or latest connection.
func (c *Client) Addrs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allAddrs()
}

// allAddrs implements Addrs. mu is held.
func (c *Client) allAddrs() []string {
	all := []string{c.serving}
	for _, addr := range append([]string{c.opts.Addr}, c.addrs...) {
		if addr != c.serving {
			all = append(all, addr)
		}
	}
	return all
}

// groupAnswerTimeout is how long a call waits for an answer before the client looks for the store at other addresses.
const groupAnswerTimeout = time.Second

// setAnswerTimeout sets answerTimeout. mu is held.
func (c *Client) setAnswerTimeout() {
	timeout := c.ttl / 4
	if len(c.addrs) > 0 || c.serving != c.opts.Addr {
		timeout = min(timeout, groupAnswerTimeout)
	}
	c.answerTimeout.Store(int64(timeout))
}
