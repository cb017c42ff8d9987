package elastic

import (
	"context"
	"encoding/json"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
)

// setAnnounced announces this process's group, while it leads, at the endpoints and at these addresses.
func (m *storeMember) setAnnounced(former []string) {
	addrs := m.access.endpoints(-1)
	m.mu.Lock()
	if former != nil {
		m.formerAddrs = former
	}
	s := m.own()
	addrs = append(addrs, m.formerAddrs...)
	m.mu.Unlock()
	m.member.SetAnnounced(addrs, s.text())
}

// consider handles the announcement of a group that this process does not belong to.
func (m *storeMember) consider(ctx context.Context, other group.Announcement) {
	var its standing
	if ctx.Err() != nil || json.Unmarshal([]byte(other.Label), &its) != nil {
		return
	}
	session := m.access.sessionIn()
	m.mu.Lock()
	does, news := m.judge(time.Now(), other, its, session)
	mine := m.standing()
	m.mu.Unlock()
	switch {
	case does == yields:
		m.follow(other, its)
		if news {
			m.log.Info().Str("address", other.Addr).Msg("other nodes keep the store of this run: joining them")
		}
	case does == notifies:
		m.member.Notify(other.Addr, mine.text()) //nolint:contextcheck // the member sends it, for as long as it lives
	case does == conflicts && news && !m.member.In(other.Instance): // else it has joined meanwhile
		m.log.Error().Str("other", other.Addr).Msg("another store of this run is at other nodes: two parts of the job have " +
			"not reached each other; end all agents of one of them")
	}
}

// follow leaves this process's group for another one, and refers clients to it. as is what its leader says of it.
func (m *storeMember) follow(other group.Announcement, as standing) {
	m.member.Yield(other)
	m.update(func() { m.founding.follow(time.Now(), other, as) })
}

// followClient is follow for the group in which the agent has got a session.
func (m *storeMember) followClient(client *coord.Client) {
	m.mu.Lock()
	as := standing{m.job.Label, false, notAtEndpoint} // as far as this process knows
	if m.followed.Instance == client.InstanceID() {
		as = m.followedAs
	}
	m.mu.Unlock()
	m.follow(group.Announcement{Addr: client.Addrs()[0], Instance: client.InstanceID()}, as)
}
