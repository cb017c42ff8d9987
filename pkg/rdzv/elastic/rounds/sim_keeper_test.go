package rounds

import (
	"maps"
	"slices"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// simGroup is a group of agents that keep the store together, and the one history of its store.
type simGroup struct {
	instance int
	last     *simWrite // the latest write that any member has applied
	// blind says that its founder, whose machine was lost, could not know of another group. The workers of both may run at
	// once if that group's leader cannot reach the founder in time.
	blind bool
}

// simWrite is a write of a server to the replicas.
type simWrite struct {
	number  int
	before  *simWrite // the server's write before, or the last one in the contents that it began with
	rev     coord.Revision
	happens []func() // report it to the checker; they run when the first member has applied it
	applied bool
}

// simKeeper replicates the contents of a group's server, as coord.NewSharedServer. Without a group it does nothing, and
// answers do not wait.
type simKeeper struct {
	part    *simPart // the member beside which it serves; nil without a group
	write   *simWrite
	edits   []replica.Edit
	happens []func()
	waiting []func() // answers that wait for a majority
	asking  bool     // a write or a confirmation is under way
}

// The buckets of a group's contents.
const (
	bucketKeys     = "keys"
	bucketSessions = "sessions"
	bucketWrite    = "write" // the number of the latest write
)

// keep records the new value of a key or session, or that it is gone if value is nil.
func (s *simStore) keep(bucket, key string, value any) {
	if s.part == nil {
		return
	}
	edit := replica.Edit{Bucket: bucket, Key: key}
	switch v := value.(type) {
	case *simKey:
		if v.owner == nil || v.owner.node != nil { // those of a local session end with the process
			edit.Value = s.w.valueOf(*v)
		}
	case *simSession:
		edit.Value = s.w.valueOf(*v)
	}
	s.edits = append(s.edits, edit)
	s.askSoon()
}

// note calls happens, which informs the checker, once the group has applied the changes until now.
func (s *simStore) note(happens func()) {
	if s.part == nil {
		happens()
		return
	}
	s.happens = append(s.happens, func() {
		s.w.check.lookAt(s)
		happens()
	})
	s.askSoon()
}

// valueOf returns bytes that stand for v.
func (w *world) valueOf(v any) []byte {
	w.values = append(w.values, v)
	return strconv.AppendInt(nil, int64(len(w.values)-1), 10)
}

func (w *world) value(b []byte) any {
	i, err := strconv.Atoi(string(b))
	if err != nil {
		panic(err)
	}
	return w.values[i]
}

// reply sends an agent a message once a majority has stored the changes that it follows from.
func (s *simStore) reply(c *simConn, do func()) {
	s.whenKept(func() { s.w.send(c, down, do) })
}

// whenKept calls do once a write or a confirmation that begins from now on has succeeded.
func (s *simStore) whenKept(do func()) {
	if s.part == nil {
		do()
		return
	}
	s.waiting = append(s.waiting, do)
	s.askSoon()
}

func (s *simStore) askSoon() {
	if !s.asking {
		s.asking = true
		s.actor.timer(s.w.now, s.ask)
	}
}

// ask asks for a write of all changes, or for a confirmation if there are none, on behalf of all that wait.
func (s *simStore) ask() {
	if !s.up {
		return
	}
	waiting, edits := s.waiting, s.edits
	var write *simWrite
	if len(edits)+len(s.happens) > 0 {
		write = &simWrite{number: len(s.w.writes), before: s.write, rev: s.rev, happens: s.happens}
		s.w.writes = append(s.w.writes, write)
		s.write = write
		number := strconv.AppendInt(nil, int64(write.number), 10)
		edits = append(edits, replica.Edit{Bucket: bucketWrite, Key: "", Value: number})
	}
	s.waiting, s.edits, s.happens = nil, nil, nil
	done := func(err error) {
		switch {
		case !s.up:
			s.lost(write)
		case err != nil && s.part.clings():
		case err != nil:
			s.lost(write)
			s.part.stopServing()
		default:
			s.kept(write, waiting)
		}
	}
	s.part.request(s, func(r *replica.Replica) (replica.Ticket, error) {
		if write == nil {
			return r.Confirm()
		}
		return r.Write(edits)
	}, done)
}

// kept goes on when a write, or a confirmation, has succeeded.
func (s *simStore) kept(write *simWrite, waiting []func()) {
	if write != nil && !write.applied {
		s.w.check.fail("one history", "write %d was acknowledged and has not happened", write.number)
	}
	s.asking = false
	for _, do := range waiting {
		do()
	}
	if len(s.waiting)+len(s.edits)+len(s.happens) > 0 {
		s.askSoon()
	}
}

// lost counts a write that has happened, although its server cannot say so.
func (s *simStore) lost(write *simWrite) {
	if write != nil && write.applied {
		s.w.check.groups.unacknowledged++
	}
}

// applied notes which write a member has applied last. The writes of a group form one chain.
func (g *simGroup) applied(w *world, r *replica.Replica) {
	number := r.Value(bucketWrite, "")
	if number == nil {
		return
	}
	n, _ := strconv.Atoi(string(number))
	write := w.writes[n]
	var news []*simWrite
	for x := write; x != nil && !x.applied; x = x.before {
		news = append(news, x)
	}
	if len(news) == 0 {
		return
	}
	if oldest := news[len(news)-1]; oldest.before != g.last {
		w.check.fail("one history", "write %d follows another one than the last of group %d", oldest.number, g.instance)
	}
	g.last = write
	for _, x := range slices.Backward(news) {
		x.applied = true
		for _, happens := range x.happens {
			happens()
		}
	}
}

// newKeptStore returns a server of a group's contents, as they are at one of its members.
func (t *simPart) newKeptStore() *simStore {
	w := t.w
	s := &simStore{
		w: w, actor: &t.p.node.agent, up: true, clock: t.p.node.clock, keys: map[string]*simKey{},
		sessions: map[coord.SessionID]*simSession{}, all: map[coord.SessionID]*simSession{}, instance: t.group.instance,
	}
	held := t.r.Freeze()
	if number, ok := held[bucketWrite][""]; ok {
		n, _ := strconv.Atoi(string(number))
		s.write = w.writes[n]
		s.rev = s.write.rev
	}
	for _, id := range slices.Sorted(maps.Keys(held[bucketSessions])) {
		was := w.value(held[bucketSessions][id]).(simSession)
		ses := &simSession{id: was.id, node: was.node, instance: s.instance}
		s.sessions[ses.id], s.all[ses.id] = ses, ses
		s.keepAlive(ses)
		if ses.opened = was.opened; w.plant.lease != nil {
			s.setEnd(ses, s.time()+w.plant.lease(w, ses))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(held[bucketKeys])) {
		k := w.value(held[bucketKeys][name]).(simKey)
		if k.owner != nil {
			if k.owner = s.sessions[k.owner.id]; k.owner == nil {
				w.check.fail("one history", "the session of %s is missing", k.key)
				continue
			}
		}
		s.keys[k.key] = &k
		s.startTTL(&k, k.ttl)
	}
	s.part = t
	return s
}

// history returns what a new leader knows of earlier stores, as leaderDriver.fresh.
func (s *simStore) history(hasRound bool) StoreHistory {
	if s.part == nil || s.fresh.createdAt.Set || hasRound || s.w.plant.noFresh {
		return s.fresh
	}
	now := OptionalTime{s.clock.read(s.w.now), true}
	return StoreHistory{createdAt: now, predecessorEnd: now}
}

// lookAt makes the run of a server's group the one that the checker checks.
func (c *checker) lookAt(s *simStore) {
	if !c.w.cfg.group || s.instance == c.w.store.instance {
		return
	}
	put(&c.runs, c.w.store.instance, c.simRun)
	if c.simRun = c.runs[s.instance]; c.simRun == nil {
		c.simRun = &simRun{last: -1}
	}
	c.w.store = s
}
