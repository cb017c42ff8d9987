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
	s, ok := ask(m, func() *serving {
		if m.replica == nil || !m.replica.Status().Leading || m.serving == nil || m.serving.server == nil {
			return nil
		}
		m.gone, m.dissolving = true, true
		m.serving.server.End(reason)
		return m.serving
	})
	switch {
	case !ok:
		return coord.ErrServerClosed
	case s == nil:
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
	sent, ok := ask(m, func() (sent []<-chan struct{}) { //nolint:contextcheck // connections end with members or with m
		if m.dissolving = false; m.replica == nil {
			return nil
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
		return sent
	})
	if !ok {
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
