package group

import (
	"context"
	"errors"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

var (
	errYielded   = errors.New("another group keeps the job's store")
	errDissolved = errors.New("the group was dissolved")
)

// Dissolve ends the group for good. Clients lose their sessions with ErrUnavailable and the reason, a clause for
// people. The other members leave the group. Dissolve returns an error if this member does not lead. It returns after
// sending the notices to clients and members, or when ctx ends. Members without a notice elect another leader.
func (m *Member) Dissolve(ctx context.Context, reason string) error {
	began := make(chan *serving, 1)
	m.call(func() {
		if m.replica == nil || !m.replica.Status().Leading || m.serving == nil || m.serving.server == nil {
			began <- nil
			return
		}
		m.gone, m.dissolving = true, true
		m.serving.server.End(reason)
		began <- m.serving
	})
	var s *serving
	select {
	case s = <-began:
	case <-m.done:
		return coord.ErrServerClosed
	}
	if s == nil {
		return errors.New("this member does not lead the group")
	}
	select { // the server's last frames, like all its frames, wait for a majority
	case <-s.ended:
	case <-ctx.Done():
	}
	return m.dismiss(ctx)
}

// dismiss notifies the other members that the group has ended, and ends this process's membership.
func (m *Member) dismiss(ctx context.Context) error {
	notices := make(chan []<-chan struct{}, 1)
	m.call(func() { //nolint:contextcheck // connections to members end with them or with m
		var sent []<-chan struct{}
		if m.dissolving = false; m.replica == nil {
			notices <- nil
			return
		}
		for _, other := range m.replica.Status().Members {
			addr := m.addrOf(other.ID)
			if other.ID == m.id || addr == "" {
				continue
			}
			done := m.send(addr, frame{kind: frameRemoved, id: other.ID})
			if other.Applied > 0 && other.Silent < missingTicks { // others have never answered or may be gone
				sent = append(sent, done)
			}
		}
		m.abandon(errDissolved)
		notices <- sent
	})
	var sent []<-chan struct{}
	select {
	case sent = <-notices:
	case <-m.done:
		return coord.ErrServerClosed
	}
	for _, done := range sent {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.done:
			return coord.ErrServerClosed
		}
	}
	return nil
}
