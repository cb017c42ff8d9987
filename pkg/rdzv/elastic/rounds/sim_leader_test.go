package rounds

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// term is a leader with the commits of its writes, one at a time and in order.
type term struct {
	w       *world
	name    string
	host    *actor
	clock   simClock
	epoch   coord.Revision
	l       *Leader
	commit  func(by coord.Revision, guards []coord.Guard, ops []simOp, done func(coord.Revision, error))
	abort   func() // called when a write fails
	restart func() // starts the next term
	known   map[coord.SessionID]bool
	closes  []CloseRequest // not passed to the leader yet
	queue   []simCommit
	busy    bool
	over    bool
	wake    time.Duration

	part      *simPart // the part in the store of the leader's process; nil without a group
	published StoreAddrs
}

type simCommit struct {
	guards []coord.Guard
	ops    []simOp
}

// savedStateOf returns the state that a new leader reads from the run's keys.
func savedStateOf(keys []simChange) SavedState {
	var f SavedState
	for _, c := range keys {
		switch v := c.value.(type) {
		case Job:
			mustEncode(c.key, f.AddJob(c.key, c.create, v))
		case Record:
			if f.Record == nil || v.Round > f.Record.Round {
				f.Record = &v
			}
		case rdzv.Outcome:
			f.Outcome, f.History.ResultRevision = &v, c.create
		case FinishedRun:
			f.History.Finished = &v
		case []PastRun:
			f.History.Past = v
		case rdzv.Preemption:
			f.Preemption = &v
		case int:
			f.Waiting = v
		case DepartedMember:
			f.Departed = append(f.Departed, v)
		case Successes:
			f.Succeeded = append(f.Succeeded, v)
		case Answer:
			f.Answers = append(f.Answers, SavedAnswer{coord.SessionID(strings.TrimPrefix(c.key, PrefixAnswer)), v})
		case Report:
			id := coord.SessionID(strings.TrimPrefix(c.key, PrefixAgent))
			f.Agents = append(f.Agents, AgentArrival{id, c.create, v})
		}
	}
	return f
}

// begin starts the leader with the state in the store.
func (t *term) begin(f SavedState) {
	t.known = map[coord.SessionID]bool{}
	for _, a := range f.Agents {
		t.known[a.ID] = true
	}
	t.w.check.term = t
	if t.w.plant.takeOver != nil {
		t.w.plant.takeOver(&f)
	}
	f.History.WallOrigin = time.Unix(0, 0).Add(t.w.now - t.clock.read(t.w.now))
	t.l = NewLeader(t.epoch, f, t.clock.read(t.w.now))
	t.w.check.successesKept(t.l)
	t.w.logf("%s leads, epoch %d: record %v, job %v, outcome %v, %d agents", t.name, t.epoch, f.Record != nil,
		f.Job != nil, f.Outcome,
		len(f.Agents))
	t.pump()
}

// batch handles a batch of the watch of the agents.
func (t *term) batch(b simBatch) {
	if t.over {
		return
	}
	now := t.clock.read(t.w.now)
	if b.resync {
		here := map[coord.SessionID]bool{}
		for _, c := range b.changes {
			here[coord.SessionID(strings.TrimPrefix(c.key, PrefixAgent))] = true
		}
		ids := t.l.Sessions()
		slices.Sort(ids)
		for _, id := range ids {
			if !here[id] {
				t.see(now, id, 0, nil)
			}
		}
	}
	for _, c := range b.changes {
		id := coord.SessionID(strings.TrimPrefix(c.key, PrefixAgent))
		if r, ok := c.value.(Report); ok {
			t.see(now, id, c.create, &r)
		} else {
			t.see(now, id, 0, nil)
		}
	}
	t.pump()
}

// see hands the leader an agent's report.
func (t *term) see(now time.Duration, id coord.SessionID, created coord.Revision, r *Report) {
	if r != nil && r.Earlier {
		t.w.check.earlier = true
	}
	if t.w.plant.report != nil {
		r = t.w.plant.report(t.l, r)
	}
	t.l.Observe(now, id, created, r)
}

// pump lets the leader decide and queues its writes.
func (t *term) pump() {
	if t.over {
		return
	}
	now := t.clock.read(t.w.now)
	if t.w.plant.decide != nil {
		t.w.plant.decide(t.l, now)
	}
	writes, wake, timed := t.l.Decide(now)
	t.w.check.decided(t)
	if t.part != nil {
		more, may := t.part.decided(t)
		if !may {
			t.over = true
			t.host.timer(t.w.now+simRetryPause, t.restart)
			return
		}
		writes = append(writes, more...)
	}
	sortAnswers(writes)
	t.queue = append(t.queue, t.commits(writes)...)
	t.wrote()
	t.next()
	if timed && !t.over {
		at := t.clock.when(wake)
		if t.wake <= t.w.now || at < t.wake {
			t.wake = at
			t.host.timer(at, t.pump)
		}
	}
}

// sortAnswers sorts adjacent answers by key, so that the iteration order of a map does not matter.
func sortAnswers(writes []Write) {
	answer := func(x Write) bool { return strings.HasPrefix(x.Key, PrefixAnswer) }
	for i := 0; i < len(writes); {
		j := i
		for j < len(writes) && answer(writes[j]) {
			j++
		}
		slices.SortFunc(writes[i:j], func(a, b Write) int { return strings.Compare(a.Key, b.Key) })
		i = j + 1
	}
}

// commits packs writes into commits, in order and as many as a commit may hold. A record has a commit of its own.
func (t *term) commits(writes []Write) []simCommit {
	var out []simCommit
	full := true
	for _, x := range writes {
		if t.w.plant.staleClose && x.Key == KeyClose {
			continue
		}
		if x.Create || full || len(out[len(out)-1].ops) == coord.MaxOps ||
			slices.ContainsFunc(out[len(out)-1].ops, func(o simOp) bool { return o.key == x.Key }) {
			c := simCommit{guards: []coord.Guard{{Key: KeyLeader, Create: t.epoch}}}
			if x.Create {
				c.guards = append(c.guards, coord.Guard{Key: x.Key})
			}
			out = append(out, c)
		}
		last := &out[len(out)-1]
		last.ops = append(last.ops, simOp{key: x.Key, value: x.Value, del: x.Value == nil, ttl: x.TTL})
		full = x.Create
	}
	return out
}

// next sends the next commit.
func (t *term) next() {
	if t.busy || t.over || len(t.queue) == 0 {
		return
	}
	c := t.queue[0]
	t.queue = t.queue[1:]
	t.busy = true
	guards := c.guards
	if t.w.plant.guards != nil {
		guards = t.w.plant.guards(guards)
	}
	t.commit(t.epoch, guards, c.ops, func(_ coord.Revision, err error) {
		t.busy = false
		if t.over {
			return
		}
		if err != nil {
			t.w.logf("%s drops epoch %d: %v", t.name, t.epoch, err)
			t.over = true
			t.abort()
			return
		}
		if len(t.queue) == 0 && t.l.history.rerunBegun {
			t.w.logf("%s ends epoch %d for a rerun", t.name, t.epoch)
			t.over = true
			t.restart()
			return
		}
		t.wrote()
		t.next()
	})
}

// wrote notifies the leader if everything is written.
func (t *term) wrote() {
	if len(t.queue) == 0 && !t.busy {
		t.l.WritesDone(t.clock.read(t.w.now))
		t.w.check.successesWritten(t.l)
		if len(t.closes) > 0 {
			t.host.timer(t.w.now, t.observeCloses)
		}
	}
}

// lead starts a term in the store's process.
func (s *simStore) lead() {
	s.local = s.open(nil, nil)
	rev, err := s.commit(s.local, 0, []coord.Guard{{Key: KeyLeader}},
		[]simOp{{key: KeyLeader, value: string(s.local.id), owned: true}})
	if err != nil {
		panic("the store's own leader: " + err.Error() + strconv.Itoa(len(s.keys)))
	}
	t := &term{w: s.w, name: "store", host: s.actor, clock: s.clock, epoch: rev, part: s.part}
	s.term = t
	t.commit = func(by coord.Revision, guards []coord.Guard, ops []simOp, done func(coord.Revision, error)) {
		ses := s.local
		s.actor.timer(s.w.now+s.w.between(0, 2*time.Millisecond), func() {
			if !t.over {
				rev, err := s.commit(ses, by, guards, ops)
				s.whenKept(func() { done(rev, err) })
			}
		})
	}
	t.abort = func() { s.w.check.fail("leader", "the store's own leader could not write") }
	t.restart = func() {
		if s.up {
			s.end(s.local, "")
			s.lead()
		}
	}
	s.w.check.newLeader()
	first := true
	s.watch(s.local, &simWatch{prefix: PrefixAgent, see: func(b simBatch) {
		if t.over {
			return
		}
		if first {
			first = false
			f := savedStateOf(slices.Concat(s.list(PrefixState), s.list(PrefixAnswer), b.changes))
			if f.StoreHistory = s.history(f.Record != nil); s.w.plant.instance != nil {
				f.StoreHistory = s.w.plant.instance(f.StoreHistory)
			}
			if t.part != nil {
				f.History.StoreEndsWithRun = true
				if s.w.cfg.voters > 1 {
					f.StoreInvites = 8
				}
			}
			t.begin(f)
			return
		}
		t.batch(b)
	}})
	s.watch(s.local, &simWatch{prefix: KeyClose, see: t.closeBatch})
}

// simRetryPause is how long the driver of a leader waits after an error of the store.
const simRetryPause = 100 * time.Millisecond
