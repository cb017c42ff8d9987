package group

import (
	"slices"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// Two groups of one store must not both serve it. A restarted process cannot know whether a group still runs without
// it. So the leader of a group announces the group at the addresses where such a process may be.

// announceTicks is the number of ticks between two announcements.
const announceTicks = 5

// Announcement is what the leader of another group announces about that group.
type Announcement struct {
	// Addr is the leader's address, Instance the group's instance id, and Label the label that the leader passed to
	// SetAnnounced.
	Addr, Instance, Label string
	// Relayed reports whether another process has passed the announcement on: the leader may have gone meanwhile.
	Relayed bool
}

// SetAnnounced sets the addresses at which this member announces its group while it leads, and the label of the
// announcements.
func (m *Member) SetAnnounced(addrs []string, label string) {
	m.call(func() { m.announced, m.label = addrs, label })
}

// announce sends announcements when they are due. The loop calls it once a tick.
func (m *Member) announce(status replica.Status) {
	if !status.Leading || m.manager.now%announceTicks != 0 {
		return
	}
	known := []string{m.opts.Addr}
	for _, id := range status.All() {
		known = append(known, m.addrOf(id))
	}
	for _, addr := range m.announced {
		if !slices.Contains(known, addr) {
			m.send(addr, frame{kind: frameAnnounce, label: m.label})
		}
	}
}

// handleAnnouncement calls Options.OnGroup with the announcement, unless this process belongs to the announced group.
func (m *Member) handleAnnouncement(in incoming) {
	a := Announcement{Addr: in.from.addr, Instance: in.from.instance, Label: in.label}
	if in.kind == frameRelay {
		a = Announcement{Addr: in.addr, Instance: in.instance, Label: in.label, Relayed: true}
	}
	if m.replica != nil && a.Instance == m.instance || m.opts.OnGroup == nil {
		return
	}
	m.opts.OnGroup(a)
}

// Notify announces a group at addr, where the leader of another group may be. It announces the group that this process
// belongs to or refers clients to. label is the label of that group's leader. Notify does nothing if this process knows
// no leader.
func (m *Member) Notify(addr, label string) {
	m.call(func() {
		if leader, _ := m.elsewhere(); leader != "" && leader != addr {
			m.send(addr, frame{kind: frameRelay, addr: leader, instance: m.instance, label: label})
		}
	})
}

// Yield gives up this process's group, if it is in one, in favor of another group: it refers clients to that group's
// member at addr. Clients of the former group find that another store has taken its place. Yield returns when all this
// is done, or after Close.
func (m *Member) Yield(to Announcement) {
	m.do(func() {
		if m.replica != nil && m.instance == to.Instance {
			return // this process has joined that group meanwhile
		}
		if m.replica != nil {
			m.abandon(errYielded)
		}
		if m.instance != to.Instance {
			m.instance = to.Instance
			m.setDoorman()
		}
		m.setReferral(to.Addr)
	})
}

// In reports whether this process is in the group with that instance id. It returns false after Close.
func (m *Member) In(instance string) bool {
	in, _ := ask(m, func() bool { return m.replica != nil && m.instance == instance })
	return in
}

// Wait marks this process as waiting for others to found a group, if it is in no group and knows none. The process then
// refers clients to itself ([coord.DialError.Waits]). Wait returns at once.
func (m *Member) Wait() {
	m.do(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.replica == nil && m.referral == "" {
			m.referral = m.opts.Addr
		}
	})
}

// ForgetGroup makes this process, while it is in no group, forget the group that it refers clients to.
func (m *Member) ForgetGroup() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.referral != m.opts.Addr { // else the process refers clients to itself because it waits
		m.referral = ""
	}
}

// setReferral sets the address to which this process refers clients while it is in no group.
func (m *Member) setReferral(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.referral = addr
}
