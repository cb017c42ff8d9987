package coord

// Ended is closed when the store has begun to end: because of Close, of Shutdown, or of an error that Err returns.
func (s *Server) Ended() <-chan struct{} { return s.stop }

// Err returns the error that ended the store, such as that of a disk that cannot be written. It is nil while the store
// runs, and after a Close that came first.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Fail ends the store because of err: local sessions are lost for err, and clients look for the store again. The caller
// still has to call Close. After the store has ended Fail does nothing.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

// fail is Fail. s.mu is held.
func (s *Server) fail(err error) {
	if s.closed {
		return
	}
	s.failure = err
	s.end(nil, err)
}
