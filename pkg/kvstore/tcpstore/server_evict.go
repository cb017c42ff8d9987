package tcpstore

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// A connection on which nothing was ever said is closed only where it takes another one's place: torch 1.13 opens a
// second connection for each worker and may never use it, and the worker spins when that is closed. So of each address as
// many silent connections are left alone, the oldest, as connections of its torch 1.13 are in use.

// leastShed is how many silent connections are closed at a time, when files run short, at least.
const evictBatch = 8

// silent tells whether nothing was ever said on c.
func (c *conn) unused() bool { return c.dec.protocol == protocolUnknown && len(c.in) == 0 }

// sparable returns the silent connections that may be closed, the oldest first.
func (l *loop) evictable() []*conn {
	var silent []*conn
	seconds := map[netip.Addr]int{} // of torch 1.13, by address
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

// shed closes up to n silent connections, the oldest first, but not keep. It returns how many.
func (l *loop) evict(n int, keep *conn) (closed int) {
	for _, c := range l.evictable() {
		if closed == n {
			break
		}
		if c != keep {
			l.closeConn(c, refuse(ReasonSilent, "nothing was said on it, and its place is needed"))
			closed++
		}
	}
	return closed
}

// addrOf is a client's address without its port; the zero value if that is no IP address.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// filesShort tells whether err is that of a process, or a machine, that has as many files open as it may.
func fileLimitReached(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// relieve closes connections on which nothing was said, those of agents that have proved nothing included, so that files can be
// opened again. It returns whether there were any.
func (s *Server) freeFiles(l *loop) bool {
	closed := 0
	l.call(func() { closed = l.evict(evictBatch, nil) })
	if s.opts.ShedAgents != nil {
		closed += s.opts.ShedAgents(evictBatch)
	}
	return closed > 0
}
