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

// Dissolve ends the group for good. Clients lose their sessions with ErrUnavailable and the reason, a clause for people.
// The other members are in no group any more. Dissolve returns an error if this member does not lead. It returns when
// the others' notices have been sent, or ctx ends: members without a notice elect another leader.
func (m *Member) Dissolve(ctx context.Context, reason string) error {
	type queued struct {
		sent []<-chan struct{}
		err  error
	}
	result := make(chan queued, 1)
	m.call(func() {
		if m.replica == nil || !m.replica.Status().Leading || m.serving == nil || m.serving.server == nil {
			result <- queued{err: errors.New("this member does not lead the group")}
			return
		}
		m.gone = true
		m.serving.server.End(reason)
		var q queued
		for _, other := range m.replica.Status().Members {
			addr := m.addrOf(other.ID)
			if other.ID == m.id || addr == "" {
				continue
			}
			if sent := m.send(addr, frame{kind: frameRemoved, id: other.ID}); other.Silent < missingTicks {
				q.sent = append(q.sent, sent)
			}
		}
		m.abandon(errDissolved)
		result <- q
	})
	select {
	case q := <-result:
		for _, sent := range q.sent {
			select {
			case <-sent:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-m.done:
				return coord.ErrServerClosed
			}
		}
		return q.err
	case <-m.done:
		return coord.ErrServerClosed
	}
}
