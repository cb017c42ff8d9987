package elastic

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/founding"
)

// setAnnounced announces this process's group, while it leads, at the endpoints and at the addresses of a former group.
// A nil former keeps the addresses of the last call.
func (m *storeMember) setAnnounced(former []string) {
	addrs := m.access.endpoints(-1)
	m.mu.Lock()
	if former != nil {
		m.formerAddrs = former
	}
	s := m.Own()
	addrs = append(addrs, m.formerAddrs...)
	m.mu.Unlock()
	m.member.SetAnnounced(addrs, s.Text())
}

// maxNotified is how many agents a new leader notifies, so that they need not look for it.
const maxNotified = 16

// notifyOthers notifies other agents that this process leads.
func (m *storeMember) notifyOthers() {
	m.mu.Lock()
	text := m.Own().Text()
	known := slices.DeleteFunc(slices.Clone(m.Known), func(addr string) bool {
		return slices.Contains(m.Status.Voters, addr)
	})
	m.mu.Unlock()
	for _, addr := range known[:min(len(known), maxNotified)] {
		m.member.Notify(addr, text)
	}
}

// expectStore notes that the store is probably at addr.
func (a *C10d) expectStore(addr string) {
	a.mu.Lock()
	client := a.client
	a.mu.Unlock()
	if client != nil {
		client.Expect(addr)
	}
}

// consider handles the announcement of a group that this process does not belong to.
func (m *storeMember) consider(ctx context.Context, other group.Announcement) {
	var its founding.Standing
	if ctx.Err() != nil || json.Unmarshal([]byte(other.Label), &its) != nil {
		return
	}
	session := m.access.sessionIn()
	if session == other.Instance {
		m.access.expectStore(other.Addr)
	}
	m.mu.Lock()
	does, news := m.Judge(time.Now(), other, its, session)
	mine := m.Standing()
	m.mu.Unlock()
	switch {
	case does == founding.Yields:
		m.follow(other, its)
		if news {
			m.log.Info().Str("address", other.Addr).Msg("other nodes keep the store of this run: joining them")
		}
	case does == founding.Notifies:
		m.member.Notify(other.Addr, mine.Text()) //nolint:contextcheck // the member sends it, for as long as it lives
	case does == founding.Conflicts && news && !m.member.In(other.Instance): // else it has joined meanwhile
		m.log.Error().Str("other", other.Addr).Msg("another store of this run is at other nodes: two parts of the job have " +
			"not reached each other; end all agents of one of them")
	}
}

// follow leaves this process's group for another one, and refers clients to it. as is the standing that the leader of
// the other group announces.
func (m *storeMember) follow(other group.Announcement, as founding.Standing) {
	m.member.Yield(other)
	m.update(func() { m.Follow(time.Now(), other, as) })
}

// followClient is follow for the group in which the agent has got a session.
func (m *storeMember) followClient(client *coord.Client) {
	m.mu.Lock()
	as := founding.Standing{Label: m.Job.Label, Index: founding.NotAtEndpoint} // as far as this process knows
	if m.Followed.Instance == client.InstanceID() {
		as = m.FollowedAs
	}
	m.mu.Unlock()
	m.follow(group.Announcement{Addr: client.Addrs()[0], Instance: client.InstanceID()}, as)
}
