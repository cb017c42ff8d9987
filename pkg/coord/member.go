package coord

import (
	"context"
	"net"
	"time"
)

// The processes that keep one store together are the members of its group. They use their own connections, which begin
// like those of agents, so that each member proves that it knows the secret.

// DialMember connects to another member of the store's group. The other side's ServerOptions.OnMember gets its end of
// the connection. DialMember ignores the TTL and the role of opts; its errors are those of [Dial].
func DialMember(ctx context.Context, opts DialOptions) (net.Conn, error) {
	opts.Role, opts.TTL = RoleMember, 0
	a := attempt{opts: &opts}
	got, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	return got.nc, nil
}

// handOver gives the connection of a member that has proved itself to ServerOptions.OnMember. After that, finish does
// not close it.
func (c *conn) handOver() {
	c.below.limit = nil
	c.nc.SetDeadline(time.Time{})
	c.server.mu.Lock()
	closed := c.server.closed
	if !closed {
		c.handedOver = true
		delete(c.server.conns, c) // the server does not close the connection either
	}
	c.server.mu.Unlock()
	if !closed {
		c.server.opts.OnMember(c.nc)
	}
}
