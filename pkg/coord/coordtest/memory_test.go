package coordtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// memory is a simple store: one lock, one log of all commits, and timers. Tests run the suite on it, with and without
// bugs.
type memory struct {
	bug string
	ttl time.Duration

	mu       sync.Mutex
	moved    chan struct{} // closed and replaced on each change
	revision coord.Revision
	keys     map[string]*entry
	log      []coord.Batch
	clients  int
	running  int // number of running watch handlers
}

type entry struct {
	event coord.Event
	owner *client
	timer *time.Timer // deletes a key with a TTL
}

// client is a client of a memory store. The memory's lock guards its fields.
type client struct {
	m         *memory
	id        coord.SessionID
	timer     *time.Timer // ends the session
	ended     bool        // the store has ended the session
	lostKnown bool        // the client knows that the session has ended
	lost      chan struct{}
	cut       bool
	epoch     int // number of broken connections
}

func newMemory(bug string, ttl time.Duration) *memory {
	return &memory{bug: bug, ttl: ttl, moved: make(chan struct{}), keys: make(map[string]*entry)}
}

// harness returns a harness of clients of the memory.
func (m *memory) harness() Harness {
	set := func(do func(*client)) func(coord.Store) {
		return func(s coord.Store) {
			m.mu.Lock()
			defer m.mu.Unlock()
			do(s.(*client))
			m.announce()
		}
	}
	return Harness{
		Open:  func(testing.TB) coord.Store { return m.open() },
		TTL:   m.ttl,
		Cut:   set(func(c *client) { c.cut = true }),
		Heal:  set(func(c *client) { c.cut = false }),
		Break: set(func(c *client) { c.epoch++ }),
		Kill:  set(func(c *client) { c.cut = true }),
	}
}

func (m *memory) open() *client {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients++
	c := &client{m: m, id: coord.SessionID(fmt.Sprint("session ", m.clients)), lost: make(chan struct{})}
	if m.bug == "session ids repeat" {
		c.id = coord.SessionID(fmt.Sprint("session ", m.clients%5))
	}
	c.timer = time.AfterFunc(m.lifetime(), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.end(c)
	})
	return c
}

func (m *memory) lifetime() time.Duration {
	if m.bug == "sessions end early" {
		return m.ttl * 4 / 5
	}
	return m.ttl
}

func (m *memory) announce() {
	close(m.moved)
	m.moved = make(chan struct{})
}

// end ends a session and deletes its keys in one commit.
func (m *memory) end(c *client) {
	if c.ended {
		return
	}
	c.ended = true
	c.timer.Stop()
	if m.bug == "keys outlive their session" {
		return
	}
	var events []coord.Event
	for key, e := range m.keys {
		if e.owner == c {
			events = append(events, m.remove(key))
			if m.bug == "keys of a session are deleted one by one" {
				m.commit(events)
				events = nil
			}
		}
	}
	if len(events) > 0 {
		m.commit(events)
	}
	m.announce()
}

func (m *memory) remove(key string) coord.Event {
	if timer := m.keys[key].timer; timer != nil {
		timer.Stop()
	}
	delete(m.keys, key)
	return coord.Event{Key: key, Deleted: true}
}

func (m *memory) commit(events []coord.Event) {
	m.revision++
	m.log = append(m.log, coord.Batch{Revision: m.revision, Events: events})
	m.announce()
}

// apply applies one op as part of the commit with the next revision.
func (m *memory) apply(c *client, op coord.Op) []coord.Event {
	old := m.keys[op.Key]
	if op.Delete {
		if old == nil && m.bug != "deletes of missing keys are delivered" {
			return nil
		}
		if old == nil {
			return []coord.Event{{Key: op.Key, Deleted: true}}
		}
		return []coord.Event{m.remove(op.Key)}
	}
	e := &entry{event: coord.Event{Key: op.Key, Value: op.Value, Create: m.revision + 1}}
	if old != nil {
		if m.bug != "a put moves the create-revision" {
			e.event.Create = old.event.Create
		}
		if m.bug == "the first owner stays" {
			e.owner = old.owner
		}
		if m.bug == "a put does not renew the TTL" && old.timer != nil {
			e.timer = old.timer
		} else if old.timer != nil && m.bug != "a TTL stays for good" {
			old.timer.Stop()
		}
	}
	if op.Owned && e.owner == nil {
		e.owner = c
	}
	if op.TTL > 0 && e.timer == nil {
		e.timer = time.AfterFunc(op.TTL, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if now := m.keys[op.Key]; now == e || now != nil && strings.Contains(m.bug, "TTL") {
				m.commit([]coord.Event{m.remove(op.Key)})
			}
		})
	}
	m.keys[op.Key] = e
	return []coord.Event{e.event}
}

// checkGuards returns a failing guard, or ok if there is none.
func (m *memory) checkGuards(guards []coord.Guard) (bad coord.Guard, ok bool) {
	for i, g := range guards {
		var create coord.Revision
		if e := m.keys[g.Key]; e != nil {
			create = e.event.Create
		}
		switch {
		case m.bug == "only the first guard counts" && i > 0:
		case m.bug == "a guard asks only whether the key is there" && (create > 0) == (g.Create > 0):
		case create != g.Create:
			return g, false
		}
	}
	return coord.Guard{}, true
}

func (c *client) Session() coord.SessionID { return c.id }
func (c *client) TTL() time.Duration       { return c.m.ttl }
func (c *client) Lost() <-chan struct{}    { return c.lost }

func (c *client) Err() error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if !c.lostKnown {
		return nil
	}
	return fmt.Errorf("memory: %w", coord.ErrSessionLost)
}

// lockWhenReachable locks the memory when the network is not cut. It returns an error, without the lock, if ctx ends or
// the session is lost.
func (c *client) lockWhenReachable(ctx context.Context) error {
	c.m.mu.Lock()
	for c.cut || c.m.running > 0 && c.m.bug == "a slow watch blocks the store" {
		moved := c.m.moved
		if c.m.bug == "a cut network loses the session at once" {
			c.markLost()
		}
		c.m.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("memory: %w", coord.ErrUnavailable)
		}
		c.m.mu.Lock()
	}
	if c.ended && c.m.bug != "a lost session goes on" {
		c.markLost()
		c.m.mu.Unlock()
		return fmt.Errorf("memory: %w", coord.ErrSessionLost)
	}
	return nil
}

// markLost records that the client knows of its session's end.
func (c *client) markLost() {
	if !c.lostKnown && c.m.bug != "Lost is never closed" {
		c.lostKnown = true
		close(c.lost)
	}
}

func (c *client) KeepAlive(ctx context.Context) error {
	if err := c.lockWhenReachable(ctx); err != nil {
		return err
	}
	defer c.m.mu.Unlock()
	if c.m.bug != "KeepAlive does nothing" {
		c.timer.Reset(c.m.lifetime())
	}
	return nil
}

func (c *client) Close(ctx context.Context) error {
	err := c.lockWhenReachable(ctx)
	if err != nil {
		c.m.mu.Lock()
	}
	defer c.m.mu.Unlock()
	if err == nil && c.m.bug != "Close ends nothing" {
		c.m.end(c)
	}
	c.markLost()
	c.m.announce()
	return err
}

func (c *client) Commit(ctx context.Context, guards []coord.Guard, ops []coord.Op) (coord.Revision, error) {
	if err := coord.CheckCommit(guards, ops); err != nil && c.m.bug != "no limits" {
		return 0, err
	}
	if err := c.lockWhenReachable(ctx); err != nil {
		return 0, err
	}
	m := c.m
	defer m.mu.Unlock()
	if g, ok := m.checkGuards(guards); !ok {
		if m.bug == "a refused commit leaves a trace" {
			m.commit(m.apply(c, ops[0]))
		}
		return 0, fmt.Errorf("memory: guard %q: %w", g.Key, coord.ErrConflict)
	}
	if m.bug == "guards are checked before the lock" {
		m.mu.Unlock()
		time.Sleep(time.Millisecond) //nolint:forbidigo // the bug needs a gap
		m.mu.Lock()
	}
	if m.bug == "revisions do not increase" {
		m.revision--
	}
	var events []coord.Event
	for _, op := range ops {
		events = append(events, m.apply(c, op)...)
		if m.bug == "a commit is split" && len(events) > 0 {
			m.commit(events)
			events = nil
		}
	}
	if len(ops) > 0 && m.bug != "a commit is split" {
		m.commit(events)
	}
	return m.revision, nil
}
