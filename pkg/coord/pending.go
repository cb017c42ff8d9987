package coord

// A connection is pending until it has a session: until then it has proved nothing, and is the first to be closed.

// pend takes note of a pending connection. Where there are too many the oldest is closed. mu is held.
func (s *Server) pend(c *conn) {
	c.place = s.pending.PushBack(c)
	if most := max(leastPending, int(s.opts.MaxMemory/2/pendingSize)); s.pending.Len() > most {
		s.shedPending(1)
	}
}

// leastPending is how many connections may be in the handshake in any store.
const leastPending = 64

// unpend is called when c has a session, or ends. mu is held.
func (s *Server) unpend(c *conn) {
	if c.place != nil {
		s.pending.Remove(c.place)
		c.place = nil
	}
}

// ShedPending closes up to n connections that have no session yet, the oldest first, and returns how many. It is for
// whoever has to open files and cannot.
func (s *Server) ShedPending(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shedPending(n)
}

func (s *Server) shedPending(n int) (closed int) {
	for ; closed < n && s.pending.Len() > 0; closed++ {
		c := s.pending.Front().Value.(*conn)
		s.unpend(c)
		c.nc.Close() // run ends
	}
	return closed
}
