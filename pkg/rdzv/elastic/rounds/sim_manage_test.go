package rounds

import (
	"slices"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// manage keeps as many voters as the job wants. It is simpler than plan of package group, which has tests of its own.
func (t *simPart) manage() {
	s := t.r.Status()
	t.askOthers(s)
	t.announce(s)
	committed := t.commit
	t.commit = s.Commit
	if !s.Leading || t.busy || s.Changing || t.server == nil {
		return
	}
	var voters, spare, waiting []replica.ID
	lost, late := false, false // a member cannot be used; a voter has been silent for 5 s
	known := map[string]bool{t.Addr: true}
	for _, id := range slices.Concat(s.Voters, s.Learners) {
		m := replicaOf(s, id)
		silent := 0
		if m != nil {
			silent = m.Silent
			if at, ok := t.adopted[id]; ok {
				silent = min(silent, t.ticks-at)
			}
		}
		isVoter := slices.Contains(s.Voters, id)
		known[t.addrOf(id)] = true
		usable := silent < 20 && !t.departs[id]
		lost = lost || !usable
		late = late || isVoter && silent >= 50
		switch {
		case !usable:
		case isVoter:
			voters = append(voters, id)
		case m.Applied > 0 && m.Match >= committed:
			spare = append(spare, id)
		default:
			waiting = append(waiting, id)
		}
	}
	slices.SortStableFunc(voters, func(a, b replica.ID) int { return rankOf(a, t.id) - rankOf(b, t.id) })
	var candidates []string
	for _, c := range t.invited {
		if !known[c.Addr] && t.ticks >= t.refused[c.Addr] {
			candidates = append(candidates, c.Addr)
		}
	}
	all := slices.Concat(voters, spare)
	most := t.w.cfg.voters
	want := all[:min(most, len(all))]
	if len(want) == 2 && !t.w.plant.twoVoters {
		want = want[:1]
	}
	grows := len(all) < most && !late && (len(waiting) > 0 || len(candidates) > 0)
	if i := slices.IndexFunc(all, t.isFirst); len(want) == 1 && i >= 0 && !grows {
		want = all[i : i+1]
	}
	switch {
	case t.departs[t.id] && len(voters) > 0:
		_ = t.r.TransferTo(voters[0])
	case len(want) == 0 || grows && len(want) < len(s.Voters):
		t.invite(s, candidates, len(all)+len(waiting))
	case !slices.Equal(sorted(want), sorted(s.Voters)) || lost:
		t.change(s, want)
	default:
		t.invite(s, candidates, len(all)+len(waiting))
	}
}

// isFirst reports whether the member is at the endpoint, where the only voter is if it can be.
func (t *simPart) isFirst(id replica.ID) bool { return t.addrOf(id) == t.w.nodes[0].name }

func rankOf(a, self replica.ID) int {
	if a == self {
		return 0
	}
	return 1
}

func sorted(ids []replica.ID) []replica.ID { return slices.Sorted(slices.Values(ids)) }

// change makes voters the voters, and the other members that can be used the learners.
func (t *simPart) change(s replica.Status, voters []replica.ID) {
	var learners []replica.ID
	for _, id := range s.Learners {
		if m := replicaOf(s, id); !slices.Contains(voters, id) && !t.departs[id] && m != nil &&
			min(m.Silent, t.ticks-t.adopted[id]) < 20 {
			learners = append(learners, id)
		}
	}
	for _, id := range s.Voters {
		if m := replicaOf(s, id); !slices.Contains(voters, id) && m != nil && m.Silent < 20 && !t.departs[id] {
			learners = append(learners, id)
		}
	}
	for _, id := range slices.Concat(s.Voters, s.Learners) {
		if !slices.Contains(voters, id) && !slices.Contains(learners, id) {
			put(&t.refused, t.addrOf(id), t.ticks+20)
		}
	}
	t.w.logf("%s makes %v voters and %v learners, in place of %v and %v", t.Addr, voters, learners, s.Voters, s.Learners)
	t.busy = true
	t.request(t.server, func(r *replica.Replica) (replica.Ticket, error) { return r.Change(voters, learners) },
		func(error) { t.busy = false })
}

// invite asks a candidate to join.
func (t *simPart) invite(s replica.Status, candidates []string, have int) {
	if len(candidates) == 0 || have >= t.w.cfg.voters {
		return
	}
	t.busy = true
	addr, id, g := candidates[0], s.Highest+1, t.group
	note := replica.Edit{Bucket: bucketMembers, Key: strconv.FormatUint(uint64(id), 10), Value: []byte(addr)}
	t.request(t.server, func(r *replica.Replica) (replica.Ticket, error) { return r.Write([]replica.Edit{note}) },
		func(err error) {
			if t.busy = false; err != nil || t.server == nil {
				return
			}
			t.busy = true
			learners := append(slices.Clone(s.Learners), id)
			t.request(t.server, func(r *replica.Replica) (replica.Ticket, error) { return r.Change(s.Voters, learners) },
				func(err error) {
					if t.busy = false; err == nil {
						put(&t.adopted, id, t.ticks)
						t.frame(addr, func(to *simPart) { to.adopt(g, id) })
					}
				})
		})
}

// adopt joins a group whose leader has asked for that.
func (t *simPart) adopt(g *simGroup, id replica.ID) {
	if t.leaving || t.r != nil && (t.group != g || id <= t.id) {
		return
	}
	t.become(g, id, false)
}

// askOthers notifies the others that this member leaves. If no leader is heard, it asks whether it is still a member.
func (t *simPart) askOthers(s replica.Status) {
	if s.Leading {
		t.heard = t.ticks
	}
	silence := t.ticks - t.heard
	if !t.leaving && (silence < 20 || silence%10 != 0) {
		return
	}
	if t.leaving {
		t.depart(t.id)
	}
	g, id, leaves, from := t.group, t.id, t.leaving, t.Addr
	var addrs []string
	for _, v := range s.All() {
		addrs = append(addrs, t.addrOf(v))
	}
	for _, c := range t.invited {
		addrs = append(addrs, c.Addr)
	}
	slices.Sort(addrs)
	for _, addr := range slices.Compact(addrs) {
		if addr == t.Addr || addr == "" {
			continue
		}
		t.frame(addr, func(to *simPart) {
			if to.r == nil || to.group != g {
				return
			}
			switch s := to.r.Status(); {
			case slices.Contains(s.All(), id):
				if leaves {
					to.depart(id)
				}
			case s.Leading && to.isSettled(s):
				to.frame(from, func(at *simPart) {
					if at.group == g && at.id == id {
						at.abandon()
					}
				})
			}
		})
	}
}

func (t *simPart) depart(id replica.ID) { put(&t.departs, id, true) }

// isSettled is Member.isSettled.
func (t *simPart) isSettled(s replica.Status) bool {
	applied := 0
	for _, id := range s.Voters {
		m := replicaOf(s, id)
		switch {
		case id == t.id, m != nil && m.Applied >= s.Changed:
			applied++
		case m != nil && m.Silent < 10:
			return false
		}
	}
	return applied > len(s.Voters)/2
}

// isLast reports whether nobody else is in the group, or can join it.
func (t *simPart) isLast() bool {
	s := t.r.Status()
	if !s.Leading || len(s.All()) > 1 {
		return false
	}
	for _, c := range t.invited {
		if c.Addr != t.Addr && t.ticks >= t.refused[c.Addr] {
			return false
		}
	}
	return true
}
