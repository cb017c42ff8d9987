package tcpstore

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
)

// A connection on which the client never sent anything, an unused connection, is closed only if its place is needed.
// torch 1.13 opens a second connection per worker and may never use it, and the worker spins if that is closed. So the
// server keeps, for each address, as many unused connections as that address has torch 1.13 connections in use, the
// oldest first.

// evictBatch is how many unused connections are closed at a time when the process is out of files.
const evictBatch = 8

// unused reports whether the client never sent anything.
func (c *conn) unused() bool { return c.dec.protocol == protocolUnknown && len(c.in) == 0 }

// evictable returns the unused connections that may be closed, the oldest first.
func (l *loop) evictable() []*conn {
	var silent []*conn
	seconds := map[netip.Addr]int{} // second connections of torch 1.13, by address
	for _, c := range l.conns {
		switch {
		case c == nil:
		case c.unused():
			silent = append(silent, c)
		case c.dec.protocol == ProtocolV1:
			seconds[addrOf(c.remote)]++
		}
	}
	slices.SortFunc(silent, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return slices.DeleteFunc(silent, func(c *conn) bool {
		from := addrOf(c.remote)
		seconds[from]--
		return seconds[from] >= 0
	})
}

// evict closes up to n unused connections, the oldest first, but not keep. It returns how many it closed.
func (l *loop) evict(n int, keep *conn) (closed int) {
	if l.silent.Len() == 0 {
		return 0
	}
	for _, c := range l.evictable() {
		if closed == n {
			break
		}
		if c != keep {
			l.closeConn(c, refuse(ReasonSilent, "the client sent nothing, and the place is needed"))
			closed++
		}
	}
	return closed
}

// addrOf returns a client's address without its port, or the zero value if it is no IP address.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}
