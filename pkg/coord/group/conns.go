package group

import (
	"net"
	"net/netip"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// server returns the server that now gets the connections of clients.
func (m *Member) server() *coord.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// ServeConn serves a connection of a client or of another member and owns it from then on. It does not block.
func (m *Member) ServeConn(nc net.Conn) {
	m.server().ServeConn(nc)
}

// ShedPending closes up to n connections that have no session yet, as [coord.Server.ShedPending].
func (m *Member) ShedPending(n int) int {
	return m.server().ShedPending(n)
}

// Stats returns the counters of the server that now gets the connections of clients.
func (m *Member) Stats() coord.Stats {
	return m.server().Stats()
}

// ReachedAt returns the addresses of this process at which clients have got a session, as [coord.Server.ReachedAt]. It
// is empty while this member does not serve.
func (m *Member) ReachedAt() []netip.Addr {
	return m.server().ReachedAt()
}

// maxInbound is how many connections other members may have. A group needs one for each of its other members.
const maxInbound = 64

// onMember takes over the connection of another member.
func (m *Member) onMember(nc net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || len(m.inbound) >= maxInbound {
		nc.Close()
		return
	}
	m.inbound[nc] = true
	m.running.Go(func() {
		m.receive(nc)
		nc.Close()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.inbound, nc)
	})
}
