package coord

import "github.com/elasticrun/elasticrun/internal/openfiles"

// A connection is pending until it has a session. Pending connections have proved nothing, so they are closed first.

// addPending adds a pending connection. It closes the oldest one if there are too many. mu is held.
func (s *Server) addPending(c *conn) {
	c.pendingElem = s.pending.PushBack(c)
	if s.pending.Len() > s.maxPending {
		s.shedPending(1)
	}
}

// pendingLimit returns the maximum number of pending connections. A client whose handshake takes a time t is closed
// only if that many others connect within t. All connections use the process's file limit, and an agent that hosts the
// store needs some files for its workers.
func (o *ServerOptions) pendingLimit() int {
	size := int64(pendingSize)
	if o.Certificates.Files().CA != "" {
		size = pendingCertificateSize
	}
	return openfiles.ClientShare(max(minPending, int(o.MaxMemory/2/size)))
}

// minPending is the number of pending connections that a store of any size allows.
const minPending = 256

// removePending is called when c gets a session or ends. mu is held.
func (s *Server) removePending(c *conn) {
	if c.pendingElem != nil {
		s.pending.Remove(c.pendingElem)
		c.pendingElem = nil
	}
}

// ShedPending closes up to n connections that have no session yet, the oldest first, and returns how many it has
// closed. Use it when the process cannot open more files.
func (s *Server) ShedPending(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shedPending(n)
}

func (s *Server) shedPending(n int) (closed int) {
	for ; closed < n && s.pending.Len() > 0; closed++ {
		c := s.pending.Front().Value.(*conn)
		s.removePending(c)
		close(c.shed)
		c.nc.Close() // makes run return
	}
	return closed
}
