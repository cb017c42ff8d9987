package elastic

import (
	"context"
	"errors"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// close ends this process's part in the store. The agent has no session any more. If the job is over, it waits, at most
// for C10d.Linger, until all agents know: the voters keep the majority until the last one does. Otherwise it hands over
// to the others. ctx bounds the wait for the end. Further calls return what the first one has.
func (m *storeMember) close(ctx context.Context, over bool) error {
	m.closeOnce.Do(func() { m.closeErr = m.leave(ctx, over) })
	return m.closeErr
}

// leave implements close.
func (m *storeMember) leave(ctx context.Context, over bool) error {
	m.update(func() { m.Closing = true })
	ended := false // whether the store has ended for all agents
	if over {
		bounded, cancel := context.WithTimeout(ctx, m.access.Linger)
		ended = m.awaitEnd(bounded)
		cancel()
	} else {
		// The signal that makes this node leave has usually ended ctx.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), founding.LeaveTimeout)
		dissolved := m.handOver(bounded)
		cancel()
		if dissolved {
			m.removeGroupFile()
		}
	}
	return m.release(ended)
}

// handOver hands over to the others what this process does for the group. It ends the group if all agents leave. It
// gives up if nobody has led the group for LostLeaderTimeout.
func (m *storeMember) handOver(ctx context.Context) (dissolved bool) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	heirs := m.Heirs()
	m.mu.Unlock()
	if heirs != nil {
		m.place.writeGroup(*heirs)
	}
	left := make(chan error, 1)
	go func() { left <- m.member.Leave(ctx) }()
	for waiting := true; waiting; {
		m.mu.Lock()
		status, deserted, changed, leaderless := m.Status, m.deserted, m.changed, m.Leaderless
		m.mu.Unlock()
		var lost <-chan time.Time
		switch {
		case deserted && status.Leading:
			m.dissolve(ctx, "all nodes have left")
			waiting, dissolved = false, true
			continue
		case status.Leader == "":
			lost = time.After(founding.LostLeaderTimeout - time.Since(leaderless))
		}
		select {
		case <-changed:
		case <-lost:
			waiting = false
		case err := <-left:
			left <- err
			waiting = false
		}
	}
	cancel()
	if err := <-left; err != nil {
		m.log.Debug().Err(err).Msg("this node has not handed over the job's store")
	}
	return dissolved
}

// awaitEnd waits until all agents know how the job has ended, or the others have gone. A member that does not vote
// waits too: it may become a voter before it knows. ended says that all agents know.
func (m *storeMember) awaitEnd(ctx context.Context) (ended bool) {
	announced := false
	for {
		m.mu.Lock()
		status, acknowledged, changed, leaderless := m.Status, m.acknowledged, m.changed, m.Leaderless
		m.mu.Unlock()
		var lost <-chan time.Time
		switch {
		case !status.Member:
			return true
		case acknowledged && status.Leading:
			m.dissolve(ctx, "the job has ended")
			return true
		case status.Leader == "":
			lost = time.After(founding.LostLeaderTimeout - time.Since(leaderless))
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

// release ends the member and the listener, in the order of host.close. ended says that no agent uses the store any
// more.
func (m *storeMember) release(ended bool) error {
	m.cancel()
	if m.place != nil {
		if ended {
			m.removeGroupFile()
		}
		if err := m.place.removeMarkers(!ended, m.access.TTL); err != nil {
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

// removeGroupFile removes the file that says that others may go on: none do.
func (m *storeMember) removeGroupFile() {
	if m.place == nil {
		return
	}
	m.place.removeBeside((*machine.Marker).GroupFile)
}
