package elastic

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// stateOf returns what people want to know of where the store is.
func stateOf(s rounds.StoreAddrs) *StoreState {
	return &StoreState{
		Voters: s.Addrs, Leader: s.Leader, SurvivesLoss: s.SurvivesLoss, Heirs: s.Heirs, Problem: s.Problem,
	}
}

// addrs returns where the agents find the store now, which this process serves.
func (m *storeMember) addrs() rounds.StoreAddrs {
	m.mu.Lock()
	defer m.mu.Unlock()
	heirs := m.Status.Heirs
	if m.unprepared() != nil {
		heirs = nil
	}
	return rounds.StoreAddrs{
		Addrs: m.Status.Voters, Leader: m.Addr, Candidates: rounds.AddrsOf(m.candidates), Others: m.Others,
		SurvivesLoss: m.Status.SurvivesLoss, HasRound: m.HasRound, Problem: m.problem, Heirs: heirs,
	}
}

// storeJoiner is an Access whose store the agents may keep together.
type storeJoiner interface {
	keptTogether() bool
	storeMoved(client *coord.Client, at rounds.StoreAddrs)
	recordProof(sent time.Duration)
	JoinStore(ctx context.Context, stop <-chan struct{}) (addr string, err error)
}

// watchStoreAddrs notifies the handler of where the store may be.
func (d *driver) watchStoreAddrs(ctx context.Context, client *coord.Client) error {
	key := d.prefix + rounds.KeyStore
	return client.Watch(ctx, key, func(b coord.Batch) error {
		for _, e := range b.Events {
			if e.Key != key || e.Deleted {
				continue
			}
			var at rounds.StoreAddrs
			if err := json.Unmarshal(e.Value, &at); err != nil {
				d.log.Warn().Err(err).Msg("cannot decode where the job's store is")
				continue
			}
			d.storeMoved(at)
		}
		return nil
	})
}

// storeMoved informs the agent's client, and this process's member of the store's group, of where the store may be. The
// client also keeps the endpoints: newcomers and a founder that was started again come there.
func (a *C10d) storeMoved(client *coord.Client, at rounds.StoreAddrs) {
	client.SetAddrs(append(at.Reachable(), a.endpoints(-1)...))
	a.mu.Lock()
	a.knowsMembers = true
	a.mu.Unlock()
	if m := a.storeMember(); m != nil {
		m.setKnown(append(slices.Clone(at.Candidates), at.Addrs...), at.Others)
		m.mu.Lock()
		m.recordRound(at.HasRound)
		m.FollowedAs.HasRound = m.FollowedAs.HasRound || at.HasRound && m.Followed.Instance == client.InstanceID()
		m.mu.Unlock()
	}
}

// storeMoved handles a change of where the store may be. The guard must know the new addresses too.
func (h *Handler) storeMoved(client *coord.Client, at rounds.StoreAddrs) {
	h.opts.Access.(storeJoiner).storeMoved(client, at)
	h.notifySession(client)
	if h.opts.StoreChanged != nil {
		h.opts.StoreChanged(stateOf(at))
	}
	if at.SurvivesLoss && !h.storeSurvives {
		h.log.Info().Msgf("%d voters keep the job's store: any one node may be lost", len(at.Addrs))
	}
	h.storeSurvives = at.SurvivesLoss
	if len(at.Heirs) > 0 && h.opts.Job.Max < rounds.MinVoters && !h.storeHasHeir {
		h.log.Info().Msgf("%s keeps the job's store: if its agent is killed or told to stop, the other node takes over; if "+
			"the node is lost, the job waits for it", at.Addrs[0])
	}
	h.storeHasHeir = len(at.Heirs) > 0
}

// joinStore makes this agent a candidate for the store's group. Shutdown waits for that.
func (h *Handler) joinStore(ctx context.Context) {
	access, ok := h.opts.Access.(storeJoiner)
	if !ok || !access.keptTogether() || h.joiningStore.Swap(true) {
		return
	}
	h.tasks.Go(func() {
		defer h.joiningStore.Store(false)
		addr, err := access.JoinStore(context.WithoutCancel(ctx), h.driveDone)
		if err != nil {
			h.log.Warn().Err(err).Msg("this node cannot help to keep the job's store")
			return
		}
		h.call(func(time.Duration) { h.m.SetStoreMember(addr) })
	})
}

// fresh describes the store for a term. A store that agents keep together may have begun without sessions, at another
// agent: until it has a round, a later leader waits as if it had just begun.
func (d *leaderDriver) fresh(hasRound bool) *rounds.FreshStore {
	if d.group == nil || d.freshStore != nil {
		return d.freshStore
	}
	if hasRound {
		return nil
	}
	now := boottime.Now()
	return &rounds.FreshStore{CreatedAt: now, HasPredecessor: true, PredecessorEnd: now}
}

// votersChanged returns a channel that signals that the voters may have changed; nil if the agents do not keep the
// store together.
func (d *leaderDriver) votersChanged() <-chan struct{} {
	if d.group == nil {
		return nil
	}
	return d.group.wake
}

// writeStoreAddrs adds the write of where the store is, if that has changed since the last write of this term.
func (d *leaderDriver) writeStoreAddrs(writes []rounds.Write, last *rounds.StoreAddrs) []rounds.Write {
	if d.group == nil {
		return writes
	}
	now := d.group.addrs()
	if now.Equal(*last) {
		return writes
	}
	*last = now
	return append(writes, rounds.Write{Key: rounds.KeyStore, Value: now})
}

// inviteCount is how many nodes of a round, the first ones by rank, are asked to help to keep the store: enough to
// replace lost voters at once.
func (m *storeMember) inviteCount() int { return 2*m.access.Voters + 2 }
