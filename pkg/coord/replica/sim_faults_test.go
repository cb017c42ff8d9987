package replica

import (
	"slices"
)

// chance reports whether something with this probability happens in this tick.
func (w *world) chance(p float64) bool { return !w.healed && w.rng.Float64() < p }

// disrupt cuts links in one direction, pauses machines and kills a voter where the leader says that it may die.
func (w *world) disrupt() {
	if w.chance(w.cfg.cuts) {
		from, to := w.rng.IntN(len(w.hosts)), w.rng.IntN(len(w.hosts))
		until := w.now + 1 + w.rng.IntN(80)
		w.cut[[2]int{from, to}] = until
		if w.rng.IntN(2) == 0 { // or the whole machine, in one direction
			for other := range w.hosts {
				w.cut[[2]int{from, other}] = until
			}
		}
		w.logf("machine %d is cut until %d", from, until)
	}
	if w.chance(w.cfg.pauses) {
		h := w.hosts[w.rng.IntN(len(w.hosts))]
		h.paused = w.now + 1 + w.rng.IntN(60)
		w.logf("machine %d is paused until %d", h.index, h.paused)
	}
	if w.chance(w.cfg.kills) {
		w.kill()
	}
	if w.chance(w.cfg.deaths) {
		w.killAlone()
	}
	if w.chance(w.cfg.notices / 100) { // that are wrong
		if h := w.hosts[w.rng.IntN(len(w.hosts))]; h.r != nil {
			w.notify(h.r.lead, w.cfg.notices)
		}
	}
}

// kill ends a random voter if the latest leader says that the group survives that.
func (w *world) kill() {
	var leader *host
	for _, h := range w.hosts {
		if h.r != nil && h.role.Leading && (leader == nil || h.role.Term > leader.role.Term) {
			leader = h
		}
	}
	if leader == nil {
		return
	}
	status := leader.r.Status()
	if w.plant.surviveEarly {
		for i := range status.Members {
			status.Members[i].Applied = status.Changed
		}
	}
	if !status.SurvivesLoss() {
		return
	}
	for _, h := range w.hosts {
		if h.r != nil && h.r.term > leader.r.term {
			return // there may be a later leader
		}
	}
	for _, id := range status.Voters {
		if w.host(id) == nil {
			return // one voter is lost already
		}
	}
	h := w.host(status.Voters[w.rng.IntN(len(status.Voters))])
	w.logf("replica %d dies", h.r.id)
	w.check.kills++
	w.notify(h.r.id, w.cfg.notices)
	if w.plant.reuseID {
		w.start(h, h.r.id, false)
		return
	}
	h.r, h.dead = nil, w.now+1+w.rng.IntN(40)
}

// store notes what a replica leaves behind that is killed now.
func (w *world) store(h *host) {
	stored := h.before
	h.before = nil
	if a, ok := h.r.Acknowledged(); ok {
		h.before = &a
	}
	if h.stored = h.before; w.plant.storeLate {
		h.stored = stored
	}
}

// killAlone kills a leader that has stored that it is the only voter, if a learner has everything.
func (w *world) killAlone() {
	for _, h := range w.hosts {
		if h.r == nil || h.stored == nil || w.orphans != nil || !slices.ContainsFunc(w.hosts, func(o *host) bool {
			return o != h && o.r != nil && w.hasAll(o, h.r)
		}) {
			continue
		}
		w.logf("replica %d dies, the only voter, and leaves %+v", h.r.id, *h.stored)
		w.orphans = h.stored
		h.r, h.dead = nil, w.now+1+w.rng.IntN(40)
		return
	}
}

// hasAll reports whether a learner can replace the leader. A planted bug makes it lack something.
func (w *world) hasAll(o *host, leader *Replica) bool {
	isLearner := slices.Contains(leader.Status().Learners, o.r.id) && slices.Contains(o.r.Status().Learners, o.r.id)
	return isLearner && (w.plant.takeAny || o.r.log.last() == leader.log.last())
}

// takeOver asks learners to take over from an only voter that has died.
func (w *world) takeOver() {
	for _, i := range w.rng.Perm(len(w.hosts)) {
		h := w.hosts[i]
		if w.orphans == nil || h.r == nil || h.paused > w.now {
			continue
		}
		a := *w.orphans
		if w.plant.takeAny {
			a.Index = h.r.log.last()
		}
		if h.r.TakeOver(a) == nil {
			w.logf("replica %d takes over", h.r.id)
			w.orphans = nil
			w.check.takeovers++
		}
		w.collect(h)
	}
}

// notify tells some replicas that the process of a leader has ended.
func (w *world) notify(leader ID, probability float64) {
	for _, h := range w.hosts {
		if h.r != nil && h.r.id != leader && w.chance(probability) {
			w.logf("replica %d learns that %d has ended", h.r.id, leader)
			w.check.notices++
			h.r.LeaderEnded(leader)
		}
	}
}

// heal ends all faults.
func (w *world) heal() {
	w.healed = true
	clear(w.cut)
	for _, h := range w.hosts {
		h.paused = 0
	}
	w.check.enough = len(w.check.acked) + 3
	w.logf("the network is healed")
}

// manage is what the owner of a leading replica does: it keeps the wanted number of voters and replaces lost ones.
func (w *world) manage(h *host) {
	status := h.r.Status()
	for _, other := range w.hosts { // a replica that cannot be a member any more makes room for another
		if other.r != nil && other.r.id <= status.Highest && !isIn(status, other.r.id) && !w.plant.twoFounders {
			w.start(other, 0, false)
		}
	}
	switch {
	case len(status.Outgoing) > 0:
	case w.chance(w.cfg.shrinks):
		w.change(h, []ID{h.r.id}, nil)
	case w.chance(w.cfg.hands):
		if h.r.TransferTo(status.Voters[w.rng.IntN(len(status.Voters))]) == nil {
			w.check.handovers++
		}
	case w.cfg.direct:
		w.change(h, append(w.kept(h, status), w.spare(status)...), nil)
	default:
		w.promote(h, status)
	}
}

func isIn(s Status, id ID) bool {
	return slices.Contains(s.Voters, id) || slices.Contains(s.Outgoing, id) || slices.Contains(s.Learners, id)
}

// kept returns the voters without one that is behind. Sometimes it omits the oldest one.
func (w *world) kept(h *host, status Status) []ID {
	kept := slices.Clone(status.Voters)
	if behind := h.r.Behind(25); len(behind) > 0 {
		return slices.DeleteFunc(kept, func(id ID) bool { return id == behind[0] })
	}
	if len(kept) >= w.cfg.voters && w.chance(w.cfg.rotates) {
		w.check.rotations++
		return kept[1:] // ids grow, so every voter is the oldest one in turn, the leader too
	}
	return kept
}

// spare returns replicas that may become voters.
func (w *world) spare(status Status) []ID {
	var spare []ID
	missing := w.cfg.voters - len(status.Voters)
	for _, h := range w.hosts {
		if h.r != nil && h.paused <= w.now && h.r.id > status.Highest && len(spare) < max(missing, 1) {
			spare = append(spare, h.r.id)
		}
	}
	return spare
}

// promote makes spare replicas learners, and learners voters once they have the entries.
func (w *world) promote(h *host, status Status) {
	if len(status.Learners) == 0 {
		if len(status.Voters) < w.cfg.voters || len(w.kept(h, status)) < len(status.Voters) {
			w.change(h, status.Voters, w.spare(status))
		}
		return
	}
	for _, m := range status.Members {
		if !m.Voter && (w.host(m.ID) == nil || m.Silent > 30) {
			w.change(h, status.Voters, nil)
			return
		}
		if !m.Voter && m.Match+3 < status.Commit {
			return
		}
	}
	voters := append(w.kept(h, status), status.Learners...)
	if len(voters) < w.cfg.voters && len(voters)%2 == 0 {
		w.change(h, status.Voters, append(slices.Clone(status.Learners), w.spare(status)...)) // one is missing
		return
	}
	w.change(h, voters[max(0, len(voters)-w.cfg.voters):], nil)
}

// change begins a change of members, with an odd number of voters.
func (w *world) change(h *host, voters, learners []ID) {
	if len(voters)%2 == 0 {
		return
	}
	if len(voters) > w.cfg.voters {
		voters = voters[len(voters)-w.cfg.voters:]
	}
	slices.Sort(voters)
	if t, err := h.r.Change(voters, learners); err == nil {
		w.logf("replica %d changes the members to %v and learners %v", h.r.id, voters, learners)
		h.ops[t] = &operation{kind: 'm', term: h.role.Term}
		w.check.changes++
	}
}
