package coord

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is a core without an index: it searches everything.
type model struct {
	revision Revision
	keys     map[string]modelKey
	sessions map[SessionID]*modelSession
	shift    time.Duration // the sum of pauses
}

type modelKey struct {
	value  string
	create Revision
	owner  SessionID
	ends   time.Duration // 0 without a TTL
}

type modelSession struct{ ttl, expires time.Duration }

// expire ends what has expired.
func (m *model) expire(now time.Duration) {
	now -= m.shift
	for id, s := range m.sessions {
		if s.expires <= now {
			m.end(id)
		}
	}
	for key, k := range m.keys {
		if k.ends != 0 && k.ends <= now {
			delete(m.keys, key)
			m.revision++
		}
	}
}

func (m *model) end(id SessionID) {
	delete(m.sessions, id)
	before := len(m.keys)
	maps.DeleteFunc(m.keys, func(_ string, k modelKey) bool { return k.owner == id })
	if len(m.keys) < before {
		m.revision++
	}
}

func (m *model) commit(id SessionID, guards []Guard, ops []Op, now time.Duration) (Revision, error) {
	for _, g := range guards {
		if m.keys[g.Key].create != g.Create {
			return 0, ErrConflict
		}
	}
	before := maps.Clone(m.keys)
	m.revision++
	changes := false
	for _, op := range ops {
		if op.Delete {
			delete(m.keys, op.Key)
			_, was := before[op.Key]
			changes = changes || was
			continue
		}
		changes = true
		k := modelKey{value: string(op.Value), create: m.revision}
		if old, ok := before[op.Key]; ok {
			k.create = old.create
		}
		if op.Owned {
			k.owner = id
		} else if op.TTL > 0 {
			k.ends = now - m.shift + op.TTL
		}
		m.keys[op.Key] = k
	}
	if !changes {
		m.revision--
	}
	return m.revision, nil
}

// modelWatch is the state of a watch that takes every batch.
type modelWatch struct {
	prefix string
	w      *watcher
	woken  bool
	began  bool
	last   Revision
	keys   map[string]modelKey
}

// take takes one batch and checks it against the state.
func (s *modelWatch) take(t *rapid.T, c *core) {
	b, fresh, ok := c.take(s.w)
	if !ok {
		return
	}
	if b.Revision > c.revision || b.Revision < s.last || b.Resync == s.began || len(fresh) != len(b.Events) {
		t.Fatalf("batch %+v, fresh %v, after revision %d, at %d", b, fresh, s.last, c.revision)
	}
	s.began, s.last = true, b.Revision
	if b.Resync {
		s.keys = map[string]modelKey{}
	}
	for i, e := range b.Events {
		_, known := s.keys[e.Key]
		if !strings.HasPrefix(e.Key, s.prefix) || e.Deleted && !known || !b.Resync && fresh[i] == known {
			t.Fatalf("watch of %q that knows %v is told %+v, fresh %v", s.prefix, s.keys, e, fresh[i])
		}
		if e.Deleted {
			delete(s.keys, e.Key)
		} else {
			s.keys[e.Key] = modelKey{value: string(e.Value), create: e.Create}
		}
	}
}

// TestCoreMatchesModel applies random operations to a core and to a model. Watches that take their batches at random
// times must know all keys in the end.
func TestCoreMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = 10 * time.Second
		c := newCore()
		m := &model{keys: map[string]modelKey{}, sessions: map[SessionID]*modelSession{}}
		sessions := map[SessionID]*session{}
		var watches []*modelWatch
		now := time.Duration(1)
		key := rapid.StringOfN(rapid.RuneFrom([]rune("ab/")), 1, 4, -1)
		prefix := rapid.StringOfN(rapid.RuneFrom([]rune("ab/")), 0, 3, -1)
		one := func(t *rapid.T) (SessionID, *session) {
			if len(sessions) == 0 {
				t.Skip("no session")
			}
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(sessions))).Draw(t, "session")
			return id, sessions[id]
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(*rapid.T) {
				id := SessionID(fmt.Sprint("s", len(sessions)))
				sessions[id] = c.openSession(id, "token of "+string(id), ttl, now)
				m.sessions[id] = &modelSession{ttl: ttl, expires: now - m.shift + ttl}
			},
			"keep alive": func(t *rapid.T) {
				if id, s := one(t); m.sessions[id] != nil {
					c.keepAlive(s, now)
					m.sessions[id].expires = now - m.shift + ttl
				}
			},
			"resume": func(t *rapid.T) {
				id, s := one(t)
				token := "token of " + string(rapid.SampledFrom([]SessionID{id, "other"}).Draw(t, "token"))
				want := m.sessions[id] != nil && token == s.token
				if got := c.resume(id, token); (got == s) != want || !want && got != nil {
					t.Fatalf("resume %s with %q: %v, want %v", id, token, got, want)
				}
			},
			"end": func(t *rapid.T) {
				id, s := one(t)
				c.endSession(s)
				m.end(id)
			},
			"time": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(1, int(8*time.Second)).Draw(t, "time"))
				if rapid.IntRange(0, 3).Draw(t, "paused") == 0 {
					c.addPause(3 * time.Second)
					m.shift += 3 * time.Second
				}
				c.expire(now)
				m.expire(now)
				if at, ok := c.nextExpiry(); ok && at <= now {
					t.Fatalf("expire at %v left a timer due at %v", now, at)
				}
			},
			"watch": func(t *rapid.T) {
				s := &modelWatch{prefix: prefix.Draw(t, "prefix")}
				s.w = c.watch(s.prefix, func() { s.woken = true })
				watches = append(watches, s)
			},
			"unwatch": func(t *rapid.T) {
				if len(watches) == 0 {
					t.Skip("no watch")
				}
				i := rapid.IntRange(0, len(watches)-1).Draw(t, "watch")
				c.unwatch(watches[i].w)
				watches = slices.Delete(watches, i, i+1)
			},
			"take": func(t *rapid.T) {
				for _, s := range watches {
					if s.woken && rapid.Bool().Draw(t, "take") {
						s.woken = false
						s.take(t, c)
					}
				}
			},
			"commit": func(t *rapid.T) {
				id, s := one(t)
				guards, ops := commits(t, key, m)
				revision, err := c.commit(s, guards, ops, now)
				if m.sessions[id] == nil {
					if !errors.Is(err, ErrSessionLost) {
						t.Fatalf("commit of a lost session: %v", err)
					}
					return
				}
				wantRevision, want := m.commit(id, guards, ops, now)
				if revision != wantRevision || !errors.Is(err, want) {
					t.Fatalf("commit: %d, %v, want %d, %v", revision, err, wantRevision, want)
				}
			},
			"": func(t *rapid.T) { compare(t, c, m, watches) },
		})
	})
}

// commits draws a commit whose guards usually hold.
func commits(t *rapid.T, key *rapid.Generator[string], m *model) (guards []Guard, ops []Op) {
	for range rapid.IntRange(0, 2).Draw(t, "guards") {
		g := Guard{Key: key.Draw(t, "guard")}
		g.Create = m.keys[g.Key].create
		if rapid.IntRange(0, 4).Draw(t, "conflict") == 0 {
			g.Create = rapid.SampledFrom([]Revision{0, 1, g.Create + 1}).Draw(t, "create")
		}
		guards = append(guards, g)
	}
	for _, key := range rapid.SliceOfNDistinct(key, 0, 4, rapid.ID).Draw(t, "keys") {
		op := Op{Key: key, Value: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "value")}
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0, 1:
			op.Delete = true
		case 2, 3:
			op.Owned = true
		case 4:
			op.TTL = time.Duration(rapid.IntRange(1, int(5*time.Second)).Draw(t, "ttl"))
		}
		ops = append(ops, op)
	}
	return guards, ops
}

// compare checks that c and m have the same contents, and that every watch without a pending batch knows them.
func compare(t *rapid.T, c *core, m *model, watches []*modelWatch) {
	got := map[string]modelKey{}
	var order []string
	c.order.each("", func(key string) { order = append(order, key) })
	for key, e := range c.entries {
		k := modelKey{value: string(e.value), create: e.create}
		if e.owner != nil {
			k.owner = e.owner.id
		}
		if e.timer != nil {
			k.ends = e.timer.ends
		}
		got[key] = k
	}
	if diff := cmp.Diff(m.keys, got, cmp.AllowUnexported(modelKey{})); diff != "" || c.revision != m.revision {
		t.Fatalf("revision %d, want %d; keys (-model +core):\n%s", c.revision, m.revision, diff)
	}
	if want := slices.Sorted(maps.Keys(got)); !slices.Equal(order, want) {
		t.Fatalf("the index holds %v, the map %v", order, want)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(m.sessions)), slices.Sorted(maps.Keys(c.sessions))); diff != "" {
		t.Fatalf("sessions (-model +core):\n%s", diff)
	}
	for _, s := range watches {
		if len(s.w.changed) > len(s.keys)+len(c.entries) {
			t.Fatalf("a watch that knows %d of %d keys remembers %d", len(s.keys), len(c.entries), len(s.w.changed))
		}
		if s.woken {
			continue
		}
		want := map[string]modelKey{}
		for key, k := range m.keys {
			if strings.HasPrefix(key, s.prefix) {
				want[key] = modelKey{value: k.value, create: k.create}
			}
		}
		if diff := cmp.Diff(want, s.keys, cmp.AllowUnexported(modelKey{})); diff != "" {
			t.Fatalf("watch of %q (-model +seen):\n%s", s.prefix, diff)
		}
	}
}
