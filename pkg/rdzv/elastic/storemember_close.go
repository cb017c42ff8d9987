package elastic

import (
	"context"
	"errors"
	"slices"
	"time"
)

// leaveTimeout bounds how long an agent that leaves a running job hands over what it does for the store's group.
const leaveTimeout = 4 * time.Second

// close ends this process's part in the store. The agent has no session any more. If the job is over, it waits, at most
// for linger, until all agents know: the voters keep the majority until the last one does. Otherwise it hands over to the
// others. ctx bounds the wait for the end. Further calls return what the first one has.
func (m *storeMember) close(ctx context.Context, over bool, linger, ttl time.Duration) error {
	m.closeOnce.Do(func() { m.closeErr = m.leave(ctx, over, linger, ttl) })
	return m.closeErr
}

// leave implements close.
func (m *storeMember) leave(ctx context.Context, over bool, linger, ttl time.Duration) error {
	m.update(func() { m.closing = true })
	m.mu.Lock()
	deserted := m.deserted
	m.mu.Unlock()
	ended := false // the store has, for all agents
	switch {
	case over:
		bounded, cancel := context.WithTimeout(ctx, linger)
		ended = m.awaitEnd(bounded)
		cancel()
	case deserted: // there is nobody to hand over to
		m.dissolve(ctx, "all nodes have left")
	default:
		// The signal that makes this node leave has usually ended ctx.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		if err := m.member.Leave(bounded); err != nil {
			m.log.Debug().Err(err).Msg("this node has not handed over the job's store")
		}
		cancel()
	}
	return m.release(ended, ttl)
}

// lostLeaderTimeout is how long a voter waits at the job's end for a leader that it has lost.
const lostLeaderTimeout = 3 * time.Second

// awaitEnd waits until all agents know how the job has ended, this process's vote is not needed any more, or the others
// have gone. ended says that all agents know.
func (m *storeMember) awaitEnd(ctx context.Context) (ended bool) {
	announced := false
	for {
		m.mu.Lock()
		status, acknowledged, changed := m.status, m.acknowledged, m.changed
		m.mu.Unlock()
		var lost <-chan time.Time
		switch {
		case !status.Member:
			return true
		case acknowledged && status.Leading:
			m.dissolve(ctx, "the job has ended")
			return true
		case !slices.Contains(status.Voters, m.addr):
			return false
		case status.Leader == "":
			lost = time.After(lostLeaderTimeout)
		case status.Leading && !announced:
			announced = true
			m.log.Info().Msg("waiting for the other nodes to learn that the job has ended")
		}
		select {
		case <-changed:
		case <-lost:
			return false
		case <-ctx.Done():
			m.log.Warn().Msg("some nodes have not learned that the job has ended")
			return false
		}
	}
}

// dissolve ends the group, which this process leads.
func (m *storeMember) dissolve(ctx context.Context, reason string) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := m.member.Dissolve(bounded, reason); err != nil {
		m.log.Debug().Err(err).Msg("not all members of the store's group have learned that it has ended")
	}
}

// release ends the member and the listener, in the order of host.close. ended says that no agent uses the store any more.
func (m *storeMember) release(ended bool, ttl time.Duration) error {
	m.cancel()
	if m.place != nil {
		var err error
		for _, marker := range m.place.markers {
			if ended {
				err = errors.Join(err, marker.removeGroup())
			}
		}
		if err = errors.Join(err, m.place.removeMarkers(!ended, ttl)); err != nil {
			m.log.Debug().Err(err).Msg("cannot remove the store's markers")
		}
		m.place.releasePort()
	}
	err := errors.Join(m.listener.Close(), m.member.Close())
	m.tasks.Wait()
	if m.place != nil {
		m.place.releaseRun()
	}
	return err
}
