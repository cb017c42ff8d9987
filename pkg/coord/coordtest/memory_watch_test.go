package coordtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

func (c *client) Watch(ctx context.Context, prefix string, handle func(coord.Batch) error) error {
	m := c.m
	w := &watcher{c: c, prefix: prefix, epoch: -1}
	if m.bug == "handle is called concurrently" {
		before := handle
		handle = func(b coord.Batch) error {
			started := make(chan struct{})
			go func() {
				close(started)
				_ = before(b)
			}()
			<-started
			return before(b)
		}
	}
	if m.bug == "a watch lags behind KeepAlive" {
		before := handle
		handle = func(b coord.Batch) error {
			select {
			case <-time.After(watchLag + ttl/2):
			case <-ctx.Done():
			}
			return before(b)
		}
	}
	for {
		b, ok, moved := w.next(ctx)
		var err error
		if ok {
			m.addRunning(1)
			err = handle(b)
			m.addRunning(-1)
		}
		switch {
		case err != nil:
			return err
		case ok:
			continue
		}
		lost := c.lost
		if m.bug == "a watch outlives its session" {
			lost = nil
		}
		select {
		case <-moved:
		case <-lost:
			return fmt.Errorf("memory: %w", coord.ErrSessionLost)
		case <-ctx.Done():
			if m.bug == "the cause is forgotten" {
				return ctx.Err()
			}
			return context.Cause(ctx)
		}
	}
}

// watcher reads the log.
type watcher struct {
	c      *client
	prefix string
	epoch  int // of the connection that it used last
	at     int // position in the log
}

// next returns the next batch, if there is one, and a channel that is closed on the next change.
func (w *watcher) next(ctx context.Context) (b coord.Batch, ok bool, moved <-chan struct{}) {
	c, m := w.c, w.c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil || c.cut || c.lostKnown && m.bug != "a watch outlives its session" {
		return b, false, m.moved
	}
	if w.epoch != c.epoch {
		again := w.epoch >= 0
		w.epoch = c.epoch
		if !again || m.bug != "a broken connection goes unnoticed" {
			b = w.all()
			b.Resync = m.bug != "no Resync"
			if again && m.bug == "a Resync hides deletes" {
				b.Resync = false
			}
			return b, true, m.moved
		}
		w.at = len(m.log)
	}
	for w.at < len(m.log) {
		b = m.log[w.at]
		w.at++
		if m.bug == "a slow watch loses changes" && len(m.log)-w.at > 20 {
			w.at = len(m.log) - 20
		}
		b.Events = slices.DeleteFunc(slices.Clone(b.Events), func(e coord.Event) bool { return !w.within(e.Key) })
		if len(b.Events) > 0 || m.bug == "all commits are delivered" {
			return b, true, m.moved
		}
	}
	return b, false, m.moved
}

func (w *watcher) within(key string) bool {
	if w.c.m.bug == "a prefix is a folder" {
		return key == w.prefix || strings.HasPrefix(key, strings.TrimSuffix(w.prefix, "/")+"/")
	}
	return strings.HasPrefix(key, w.prefix)
}

// all lists the keys.
func (w *watcher) all() coord.Batch {
	m := w.c.m
	w.at = len(m.log)
	b := coord.Batch{Revision: m.revision}
	for key, e := range m.keys {
		if w.within(key) {
			b.Events = append(b.Events, e.event)
		}
	}
	if m.bug == "lists are stale" && len(m.log) > 0 {
		last := m.log[len(m.log)-1]
		b.Events = slices.DeleteFunc(b.Events, func(e coord.Event) bool {
			return slices.ContainsFunc(last.Events, func(n coord.Event) bool { return n.Key == e.Key })
		})
		w.at--
	}
	return b
}

var _ coord.Store = (*client)(nil)

// addRunning changes the number of running watch handlers.
func (m *memory) addRunning(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running += n
	if m.bug == "a slow watch blocks the store" {
		m.announce()
	}
}

// ttl is the TTL of the memory's sessions.
const ttl = time.Second
