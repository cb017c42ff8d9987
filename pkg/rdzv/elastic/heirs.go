package elastic

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Heirs says which agents can take over the store if this process, which keeps it alone, is killed. Once the process is
// dead, its guard asks one of them ([Heirs.HandOver]).
//
// An agent that is started again at the endpoint meanwhile must not begin another store. The file of heirs decides:
//
//	the guard, before it asks      renames the file to the group file; if it cannot, it asks nobody
//	an agent that starts before    removes the file, so the guard cannot hand over
//	an agent that starts later     finds the group file, and asks the heirs before it founds a group
//
// The guard leaves the renamed file even if no heir takes over: the next agent learns that from the heirs.
type Heirs struct {
	Addrs []string `json:"addrs"`
	// From and To are the names of the file before and after, on this machine. They are empty if this process is at no
	// endpoint: there, no agent founds a group before it has asked others.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Heirs returns nil if no agent can take over, or if there is no place for the file.
func (a *C10d) Heirs() *Heirs {
	m := a.storeMember()
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &Heirs{}
	if m.unprepared() != nil {
		return nil
	}
	for _, addr := range m.Status.Heirs {
		if m.Alone && slices.Contains(m.Known, addr) { // the file names those that are known
			h.Addrs = append(h.Addrs, addr)
		}
	}
	switch {
	case len(h.Addrs) == 0:
		return nil
	case m.place == nil:
		return h
	case len(m.place.markers) != 1 || m.place.markers[0] == nil:
		return nil
	}
	h.From, h.To = m.place.markers[0].HeirsFile(), m.place.markers[0].GroupFile()
	return h
}

// store has the guard keep what another agent needs to take over.
func (m *storeMember) store(stored []byte) {
	if m.access.Store == nil {
		return
	}
	if err := m.access.Store(stored); stored != nil {
		m.setUnprepared(&m.noRecord, err)
	}
}

// unprepared returns why no other agent can take over from this one, or nil. m.mu is held.
func (m *storeMember) unprepared() error { return cmp.Or(m.noRecord, m.noHeirsFile) }

// setUnprepared sets noRecord or noHeirsFile. It warns when a takeover becomes impossible in a job of at most two
// nodes: in larger jobs the voters replace a lost one.
func (m *storeMember) setUnprepared(cause *error, err error) {
	m.mu.Lock()
	before := m.unprepared()
	*cause = err
	now := m.unprepared()
	m.mu.Unlock()
	if before == nil && now != nil && m.access.MaxNodes < rounds.MinVoters {
		m.log.Warn().Err(now).Msg("if this node's agent is killed, the other node cannot take over the job's store")
	}
	if (before == nil) != (now == nil) {
		m.wakeLeader()
	}
}

// HandOver asks the heirs, one after the other, until one has taken over, or may have. stored is what the dead process
// has stored last, and dial returns how to connect to an address. An heir may still be reading what the process has
// sent it, so HandOver tries again until ctx ends, and for two seconds at most.
func (h *Heirs) HandOver(ctx context.Context, stored []byte, dial func(addr string) (coord.DialOptions, error)) {
	ctx, cancel := context.WithTimeout(ctx, founding.HandOverTime)
	defer cancel()
	renamed := false
	for {
		again := false
		for _, addr := range h.Addrs {
			switch h.ask(ctx, addr, stored, dial, &renamed) {
			case settled:
				return
			case notYet:
				again = true
			}
		}
		if !again {
			return
		}
		select {
		case <-time.After(founding.HandOverPause):
		case <-ctx.Done():
			return
		}
	}
}

// consent is the result of one request to an heir.
type consent int

const (
	refuses consent = iota // it certainly has not taken over, and will not
	notYet                 // it certainly has not taken over, but another attempt makes sense
	settled                // it has taken over, or may have; or no heir may
)

// ask asks one heir.
func (h *Heirs) ask(
	ctx context.Context, addr string, stored []byte, dial func(addr string) (coord.DialOptions, error), renamed *bool,
) consent {
	opts, err := dial(addr)
	if err != nil {
		return refuses
	}
	ctx, cancel := context.WithTimeout(ctx, founding.HandOverAttempt)
	defer cancel()
	var asked, nextAgent bool
	err = group.TakeOver(ctx, opts, stored, func() error {
		if err := h.rename(renamed); err != nil {
			nextAgent = true
			return err
		}
		asked = true
		return nil
	})
	switch {
	case nextAgent:
		return settled
	case errors.Is(err, group.ErrNotYet), !asked && errors.Is(err, coord.ErrUnavailable):
		return notYet
	case errors.Is(err, group.ErrRefused), !asked:
		return refuses
	}
	return settled
}

// rename renames the file, once. It fails if another agent has been started at the endpoint.
func (h *Heirs) rename(renamed *bool) error {
	if h.From == "" || *renamed {
		return nil
	}
	err := os.Rename(h.From, h.To)
	*renamed = err == nil
	return err
}

// mayTakeOver reports whether this process may take over the group in place of its only voter: its agent has a session
// there, which was answered not long ago. The group checks the time too. But the group's clock does not count the time
// in which the machine is suspended, and a paused process may read the leader's last message late.
func (m *storeMember) mayTakeOver(instance string) bool {
	session, answered := m.access.sessionIn(), m.access.answeredAt()
	m.mu.Lock()
	defer m.mu.Unlock()
	return session == instance && m.MayTakeOver(boottime.Now()-answered)
}

// recordProof records when a keep-alive was sent that the store has answered, on the clock of package boottime.
func (a *C10d) recordProof(sent time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proof = max(a.proof, sent)
}

// answeredAt returns when the agent sent its latest request that a store has answered, on the clock of package
// boottime. It returns 0 if there is none.
func (a *C10d) answeredAt() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		return 0
	}
	return max(a.proof, a.client.Began())
}
