package elastic

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
)

// notAtEndpoint is the index of a process that listens at no endpoint.
const notAtEndpoint = 1 << 20

// standing is what the leader of a group announces of it.
type standing struct {
	Label    string `json:"label,omitempty"` // C10d.Label
	HasRound bool   `json:"has_round,omitempty"`
	Index    int    `json:"index"`
}

// precedes reports whether the group with this standing, which is led at addr, goes on when it meets the other one: it
// has a round and the other one has none, or neither has and its endpoint is the earlier one. Endpoints in different
// orders can make the indexes equal; then the addresses decide. Of two groups with rounds none precedes.
func (s standing) precedes(addr string, other standing, otherAddr string) bool {
	if s.HasRound || other.HasRound {
		return !other.HasRound
	}
	return cmp.Or(cmp.Compare(s.Index, other.Index), cmp.Compare(addr, otherAddr)) < 0
}

// setAnnounced announces this process's group, while it leads, at the endpoints and at these addresses.
func (m *storeMember) setAnnounced(former []string) {
	addrs := m.access.endpoints(-1)
	m.mu.Lock()
	if former != nil {
		m.former = former
	}
	s := standing{m.access.Label, m.hasRound, m.index}
	addrs = append(addrs, m.former...)
	m.mu.Unlock()
	m.member.SetAnnounced(addrs, s.text())
}

func (s standing) text() string {
	text, _ := json.Marshal(s) // cannot fail
	return string(text)
}

// consider handles the announcement of a group that this process does not belong to.
func (m *storeMember) consider(ctx context.Context, other group.Announcement) {
	var its standing
	if ctx.Err() != nil || json.Unmarshal([]byte(other.Label), &its) != nil || its.Label != m.access.Label {
		return
	}
	now, news := m.judge(other, its, m.access.sessionIn())
	switch {
	case now == yields:
		m.follow(other, its)
		if news {
			m.log.Info().Str("address", other.Addr).Msg("other nodes keep the store of this run: joining them")
		}
	case now == notifies:
		m.member.Notify(other.Addr, m.standing().text()) //nolint:contextcheck // the member sends it, for as long as it lives
	case now == conflicts && news && !m.member.In(other.Instance): // else it has joined meanwhile
		m.log.Error().Str("other", other.Addr).Msg("another store of this run is at other nodes: two parts of the job have " +
			"not reached each other; end all agents of one of them")
	}
}

// reaction is what a process does about another group that it has heard of.
type reaction int

const (
	stays     reaction = iota
	yields            // it follows the other group
	notifies          // it names its own group to the other one's leader, who may not know of it
	conflicts         // both groups go on
)

// judge decides what this process does about the announcement of another group. session is the instance of the store in
// which the agent has a session. news says that the latest announcement was of a third group.
func (m *storeMember) judge(other group.Announcement, its standing, session string) (v reaction, news bool) {
	mine := m.standing()
	m.mu.Lock()
	defer m.mu.Unlock()
	s, at := m.status, m.addr
	if !s.Member {
		at = m.followed.Addr
	}
	following := m.followed.Instance != "" && (time.Since(m.heardOf) < m.access.TTL || session == m.followed.Instance)
	knows := s.Member || following && m.followed.Instance != other.Instance
	leaderless := s.Member && s.Leader == "" && time.Since(m.leaderless) >= m.access.TTL/2
	mayYield := m.place != nil && (!s.Member || !m.hasRound) // only leaderless members leave a group with a round
	news = m.otherGroup != other.Instance
	m.otherGroup = other.Instance
	switch {
	case !m.closing && (leaderless || mayYield && (!knows || its.precedes(other.Addr, mine, at))):
		m.yielding = m.yielding || s.Member
		return yields, news
	case knows && mine.precedes(at, its, other.Addr) && (s.Leader != "" || time.Since(m.firstHand) < lately):
		return notifies, news
	case s.Member:
		return conflicts, news
	}
	return stays, news
}

// standing returns what the leader says of the group that this process belongs to, or else follows.
func (m *storeMember) standing() standing {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.Member {
		return standing{m.access.Label, m.hasRound, m.index}
	}
	return m.followedAs
}

// lately is how old the news of a group may be that this process passes on: its leader announces it twice a second.
// What others have passed on is not: such news would go round when its group has ended.
const lately = 2 * time.Second

// follow leaves this process's group for another one, and refers clients to it. as is what its leader says of it. Until
// this process learns who keeps the other group, it knows only who has announced it, and those that the file names.
func (m *storeMember) follow(other group.Announcement, as standing) {
	m.member.Yield(other)
	m.update(func() {
		if !m.wasMember && m.earlier != nil {
			m.known, m.others = slices.Clone(m.earlier.Addrs), m.earlier.Others
		}
		if other.Addr != m.addr && !slices.Contains(m.known, other.Addr) {
			m.known = append(slices.Clip(m.known), other.Addr)
		}
		m.heardOf, m.yielding, m.wasMember = time.Now(), false, true
		m.followed, m.followedAs = other, as
		if !other.Relayed {
			m.firstHand = m.heardOf
		}
	})
}

// followClient is follow for the group in which the agent has got a session.
func (m *storeMember) followClient(client *coord.Client) {
	m.mu.Lock()
	as := standing{m.access.Label, false, notAtEndpoint} // as far as this process knows
	if m.followed.Instance == client.InstanceID() {
		as = m.followedAs
	}
	m.mu.Unlock()
	m.follow(group.Announcement{Addr: client.Addrs()[0], Instance: client.InstanceID()}, as)
}
