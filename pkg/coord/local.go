package coord

import (
	"context"
	"crypto/rand"
	"time"
)

// local is a Store in the server's own process.
type local struct {
	server  *Server
	session *session // guarded by server.mu
	lost    chan struct{}
	err     error // set before lost is closed
}

// Local returns a Store in this process. Its session does not expire; it ends with the server or with Close. The error
// is ErrServerClosed or ErrFull.
func (s *Server) Local() (Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrServerClosed
	}
	if err := s.core.budget.claim(localSize, false); err != nil {
		return nil, err
	}
	l := &local{server: s, lost: make(chan struct{})}
	l.session = s.core.openSession(SessionID(rand.Text()), "", 0, s.clock())
	s.locals[l] = struct{}{}
	return l, nil
}

// lose ends the session. server.mu is held.
func (l *local) lose(err error) {
	delete(l.server.locals, l)
	l.server.core.endSession(l.session)
	l.err = err
	close(l.lost)
}

func (l *local) Session() SessionID { return l.session.id }

func (l *local) TTL() time.Duration { return l.server.opts.SessionTTL }

func (l *local) KeepAlive(context.Context) error { return l.Err() }

func (l *local) Commit(ctx context.Context, guards []Guard, ops []Op) (Revision, error) {
	if ctx.Err() != nil {
		return 0, unavailable(ctx)
	}
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waitForBacklog()
	if err := l.Err(); err != nil {
		return 0, err
	}
	revision, err := s.core.commit(l.session, guards, ops, s.clock())
	if err != nil {
		return 0, err
	}
	s.startTicker()
	return revision, s.waitDurable()
}

func (l *local) Watch(ctx context.Context, prefix string, handle func(Batch) error) error {
	s := l.server
	changed := make(chan struct{}, 1)
	s.mu.Lock()
	w := s.core.watch(prefix, func() { signal(changed) })
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.core.unwatch(w)
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.lost:
			return l.err
		case <-changed:
		}
		s.mu.Lock()
		err := l.Err()
		b, _, ok := s.core.take(w)
		if err == nil {
			err = s.waitDurable()
		}
		s.mu.Unlock()
		if ok && err == nil && ctx.Err() == nil {
			if err := handle(b); err != nil {
				return err
			}
		}
	}
}

func (l *local) Lost() <-chan struct{} { return l.lost }

func (l *local) Err() error {
	select {
	case <-l.lost:
		return l.err
	default:
		return nil
	}
}

func (l *local) Close(context.Context) error {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	if l.Err() == nil {
		l.lose(errClosed)
	}
	return nil
}
