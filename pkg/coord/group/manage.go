package group

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// bucketMembers holds the address of each member by its id, and bucketProcesses its Candidate.Process. A later server
// of the store ignores both.
const (
	bucketMembers   = "members"
	bucketProcesses = "processes"
)

func keyOf(id replica.ID) string { return strconv.FormatUint(uint64(id), 10) }

// manager is the state that the loop keeps for managing the group. The zero value is ready for use.
type manager struct {
	now     int                // ticks since the start
	busy    bool               // a step is under way
	commit  uint64             // the commit index at the previous tick
	heard   int                // when this member last heard from a leader
	adopted map[replica.ID]int // when each learner was asked to join, or was first seen
	refused map[string]refusal // the addresses of candidates that are not asked to join for a while
	departs map[replica.ID]int // when each leaving member announced that it will leave
	paths   paths
}

// refusal keeps a candidate from being asked to join, because it has left the group or was silent.
type refusal struct {
	until   int    // in ticks since the start
	process string // the member's, "" if unknown; the refusal does not apply to another process
}

// note records the address and the process of a member in the contents, so that all members know them. done receives
// the outcome.
func (g *manager) note(m *Member, id replica.ID, addr string, done func(error)) {
	edits := []replica.Edit{{Bucket: bucketMembers, Key: keyOf(id), Value: []byte(addr)}}
	if c, _ := m.candidate(addr); c.Process != "" {
		edits = append(edits, replica.Edit{Bucket: bucketProcesses, Key: keyOf(id), Value: []byte(c.Process)})
	}
	m.request(func(r *replica.Replica) (replica.Ticket, error) { return r.Write(edits) }, done)
}

// leaving records that a member will end soon.
func (g *manager) leaving(id replica.ID) {
	if _, known := g.departs[id]; known {
		return
	}
	if g.departs == nil {
		g.departs = map[replica.ID]int{}
	}
	g.departs[id] = g.now
}

// addrOf returns a member's address, or "".
func (m *Member) addrOf(id replica.ID) string {
	if value := m.replica.Value(bucketMembers, keyOf(id)); value != nil {
		return string(value)
	}
	return m.addrs[id] // for a member that is missing in the contents, which may be out of date
}

// addrsOf returns the addresses of members.
func (m *Member) addrsOf(ids []replica.ID) []string {
	addrs := make([]string, len(ids))
	for i, id := range ids {
		addrs[i] = m.addrOf(id)
	}
	return addrs
}

// manage takes the next step of plan, if this member leads and no step is under way.
func (m *Member) manage() {
	g := &m.manager
	g.now++
	status := m.replica.Status()
	m.askOthers(status)
	m.disconnectFormer(status)
	m.announce(status)
	committed := g.commit
	g.commit = status.Commit
	if !status.Leading || g.busy || status.Changing {
		return
	}
	v := m.view(status, committed)
	next := plan(v)
	done := func(err error) {
		g.busy = false
		if err != nil {
			m.log.Debug().Err(err).Msg("cannot change the members of the store's group")
		}
	}
	switch {
	case next.add != "":
		m.log.Debug().Str("address", next.add).Msg("asks another process to join the store's group")
		g.busy = true
		m.add(status, next.add, done)
	case len(next.voters) > 0:
		m.log.Debug().Strs("voters", m.addrsOf(next.voters)).Strs("learners", m.addrsOf(next.learners)).
			Msg("changes the members of the store's group")
		g.busy = true
		lost := without(slices.Concat(status.Voters, status.Learners), slices.Concat(next.voters, next.learners))
		silent := ids(slices.DeleteFunc(slices.Concat(v.voters, v.learners), func(o member) bool { return !o.silent }))
		change := func(r *replica.Replica) (replica.Ticket, error) { return r.Change(next.voters, next.learners) }
		m.request(change, func(err error) {
			if err == nil {
				m.forget(status, lost, silent)
			}
			done(err)
		})
	case next.transfer != 0:
		m.log.Debug().Str("to", m.addrOf(next.transfer)).Msg("hands over the job's store")
		if err := m.replica.TransferTo(next.transfer); err != nil {
			m.log.Debug().Err(err).Msg("cannot hand over the job's store")
		}
	}
}

// add makes the process at addr a learner. Once the group has agreed, it asks the process to join.
func (m *Member) add(status replica.Status, addr string, done func(error)) {
	g := &m.manager
	id := status.Highest + 1
	learners := append(slices.Clone(status.Learners), id)
	change := func(r *replica.Replica) (replica.Ticket, error) { return r.Change(status.Voters, learners) }
	g.note(m, id, addr, func(err error) {
		if err != nil {
			done(err)
			return
		}
		m.request(change, func(err error) {
			if err == nil {
				g.adopt(id)
				m.send(addr, frame{kind: frameAdopt, id: id})
			}
			done(err)
		})
	})
}

// adopt starts the time within which a learner must answer and catch up.
func (g *manager) adopt(id replica.ID) {
	if g.adopted == nil {
		g.adopted = map[replica.ID]int{}
	}
	g.adopted[id] = g.now
}

// forget forgets the addresses of removed members. Members that left or were silent are not asked to join again for a
// while. That time is short for a voter, which may have been restarted.
func (m *Member) forget(status replica.Status, lost, silent []replica.ID) {
	g := &m.manager
	var edits []replica.Edit
	for _, id := range lost {
		_, left := g.departs[id]
		pause := 0
		switch {
		case left:
			pause = refusedTicks
		case !slices.Contains(silent, id):
		case slices.Contains(status.Voters, id):
			pause = silentTicks
		default:
			pause = refusedTicks
		}
		m.refuse(id, pause)
		delete(g.adopted, id)
		for _, bucket := range []string{bucketMembers, bucketProcesses} {
			edits = append(edits, replica.Edit{Bucket: bucket, Key: keyOf(id)})
		}
	}
	if len(edits) > 0 {
		m.request(func(r *replica.Replica) (replica.Ticket, error) { return r.Write(edits) }, func(error) {})
	}
}

// refuse keeps a removed member from being asked to join again for the given number of ticks, unless another process
// follows it at its address.
func (m *Member) refuse(id replica.ID, ticks int) {
	g := &m.manager
	if g.refused == nil {
		g.refused = map[string]refusal{}
	}
	process := m.processOf(id)
	if process == "" { // the member founded the group; usually its process is still the candidate
		c, _ := m.candidate(m.addrOf(id))
		process = c.Process
	}
	g.refused[m.addrOf(id)] = refusal{until: g.now + ticks, process: process}
}

// processOf returns the process of a member, or "" if it is not known.
func (m *Member) processOf(id replica.ID) string {
	return string(m.replica.Value(bucketProcesses, keyOf(id)))
}

// isReplaced reports whether another process is at the address of a member: the member is gone.
func (m *Member) isReplaced(id replica.ID) bool {
	process := m.processOf(id)
	c, _ := m.candidate(m.addrOf(id))
	return process != "" && c.Process != "" && c.Process != process
}

// refusedUntil returns the tick from which the candidate may be asked to join.
func (g *manager) refusedUntil(c Candidate) int {
	if r := g.refused[c.Addr]; r.process == c.Process {
		return r.until
	}
	return 0
}

// view returns the input of plan. committed is the commit index of the previous tick.
func (m *Member) view(status replica.Status, committed uint64) view {
	g := &m.manager
	v := view{self: m.id, want: m.opts.Voters}
	describe := func(id replica.ID) member {
		if m.opts.First != "" && m.addrOf(id) == m.opts.First {
			v.first = id
		}
		since, leaving := g.departs[id]
		v.late = v.late || leaving && g.now-since >= replaceTicks
		if id == m.id {
			return member{id: id, current: true, leaving: leaving}
		}
		other, _ := find(status.Members, id)
		silent := other.Silent
		if joined, ok := g.adopted[id]; ok {
			silent = min(silent, g.now-joined) // it could send nothing before it was asked to join
		}
		return member{
			id: id, silent: silent >= silentTicks || silent >= missingTicks && m.isReplaced(id), leaving: leaving,
			current: other.Applied > 0 && other.Match >= committed,
		}
	}
	known := map[string]bool{m.opts.Addr: true}
	for _, id := range status.Voters {
		v.voters = append(v.voters, describe(id))
		other, _ := find(status.Members, id)
		v.late = v.late || other.Silent >= silentTicks+replaceTicks
		known[m.addrOf(id)] = true
	}
	for _, id := range status.Learners {
		if _, seen := g.adopted[id]; !seen {
			g.adopt(id) // an earlier leader has asked it to join
		}
		learner := describe(id)
		learner.silent = learner.silent || !learner.current && g.now-g.adopted[id] >= slowTicks
		v.learners = append(v.learners, learner)
		known[m.addrOf(id)] = true
	}
	m.mu.Lock()
	able := slices.Clone(m.candidates)
	m.mu.Unlock()
	able = slices.DeleteFunc(able, func(c Candidate) bool { return known[c.Addr] || g.now < g.refusedUntil(c) })
	// First the candidates that were never refused, then those whose refusal ended first.
	slices.SortStableFunc(able, func(a, b Candidate) int { return cmp.Compare(g.refusedUntil(a), g.refusedUntil(b)) })
	for _, c := range able {
		v.candidates = append(v.candidates, c.Addr)
	}
	m.markApart(&v)
	return v
}

// markApart marks a voter that another process should replace because the voter does not reach another voter. It also
// moves the candidates that do not reach a voter to the end.
func (m *Member) markApart(v *view) {
	g := &m.manager
	var voters []located
	for _, o := range v.voters {
		if o.usable() && o.id != m.id {
			voters = append(voters, located{o.id, m.addrOf(o.id)})
		}
	}
	others := v.candidates
	if usable := slices.DeleteFunc(slices.Clone(v.learners), func(o member) bool { return !o.usable() }); len(usable) > 0 {
		others = m.addrsOf(ids(usable)) // learners become voters before a candidate does
	}
	outcast := g.paths.outcast(g.now, voters, others, v.first)
	var stay []string
	for i := range v.voters {
		o := &v.voters[i]
		if o.apart = outcast != 0 && o.id == outcast; o.usable() && o.id != m.id {
			stay = append(stay, m.addrOf(o.id))
		}
	}
	slices.SortStableFunc(v.candidates, func(a, b string) int {
		return cmp.Compare(g.paths.misses(g.now, a, stay), g.paths.misses(g.now, b, stay))
	})
}
