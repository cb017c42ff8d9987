package membership

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// TestDynamicCease: a member that is about to close, and cannot be reached any more, is gone to those who join, judges nobody, and does not complain
// that the others have evicted it.
func TestDynamicQuiesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := newGroup(t, memory())
		g.join("a")
		g.opts.Logger = zerolog.New(zerolog.SyncWriter(&log))
		closing := g.join("b")
		g.opts.Logger = zerolog.Logger{}
		dead := g.join("c")
		synctest.Wait()
		closing.Quiesce()
		closing.Quiesce()
		g.net.change(func() { g.net.cuts[[2]uint64{closing.Self().Incarnation, 0}] = true })
		g.net.change(func() { dead.dead = true })
		closing.Suspect(dead.Self().Incarnation)
		after(t.Context(), time.Minute)
		g.exact("a suspicion of one that closes")
		g.net.change(func() { dead.dead = false })
		g.drop(closing)
		g.join("d")
		g.exact("a join while another closes")
		synctest.Wait()
		select {
		case <-closing.Done():
			t.Error("Done is closed before Close")
		default:
		}
		if seen := len(closing.View().Members); seen != 3 {
			t.Errorf("it sees %d members", seen)
		}
		closing.Close()
		<-closing.Done()
		if closing.Err() != nil || log.Len() > 0 {
			t.Errorf("it ended with %v, log %s", closing.Err(), log.String())
		}
	})
}

// TestDynamicCeaseEndsJoin, and another is not begun.
func TestDynamicQuiesceEndsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		a := g.join("a")
		h := g.newHost("b")
		g.net.change(func() { g.net.cuts[[2]uint64{h.self.Incarnation, 0}] = true })
		result := make(chan error)
		go func() { result <- h.Join(t.Context()) }()
		after(t.Context(), g.opts.SyncTimeout/2)
		h.Quiesce()
		if err := <-result; !errors.Is(err, ErrShutdown) {
			t.Errorf("join: %v", err)
		}
		if err := h.Join(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("second join: %v", err)
		}
		synctest.Wait()
		g.exact("a join that was closed")
		a.Quiesce()
		g.leave(a)
		<-a.Done()
	})
}

// TestDynamicEvictedWhileJoining is told so.
func TestDynamicEvictedWhileJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		a := g.join("a")
		h := g.newHost("b")
		g.net.change(func() { g.net.cuts[[2]uint64{h.self.Incarnation, 0}] = true })
		result := make(chan error)
		go func() { result <- h.Join(t.Context()) }()
		after(t.Context(), g.opts.SyncTimeout/2)
		if _, err := a.evict(t.Context(), a.tracker.current(), h.Self()); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, ErrEvicted) || errors.Is(err, ErrShutdown) {
			t.Errorf("join: %v", err)
		}
		if !errors.Is(h.Err(), ErrEvicted) {
			t.Errorf("its state: %v", h.Err())
		}
		g.exact("an eviction")
	})
}

// TestDynamicAnswersWhileLeaving: an answer that comes as late as can be leaves no key.
func TestDynamicAnswersWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memory())
		a := g.join("a")
		h := g.newHost("b")
		h.store.around = func(ctx context.Context, op, key string, carryOut func() error) error {
			if op == "set" && key == replyKeyOf(h.self.Incarnation) {
				<-ctx.Done()
				<-time.After(time.Second) // The request was on its way.
			}
			return carryOut()
		}
		if err := h.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.live = append(g.live, h)
		if answered, err := a.query(t.Context(), h.Self().Incarnation); !answered || err != nil {
			t.Errorf("answered %v, %v", answered, err)
		}
		g.leave(h)
		for _, key := range []string{queryKeyOf(h.self.Incarnation), replyKeyOf(h.self.Incarnation)} {
			if there, _ := a.store.Check(t.Context(), key); there {
				t.Errorf("key %q is left", key)
			}
		}
	})
}

// TestDynamicSmallestTimes: the least silence and patience that there are do no harm but to patience.
func TestDynamicSmallestTimes(t *testing.T) {
	for _, least := range []time.Duration{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, memory())
			g.opts.LockTimeout, g.opts.ReplyTimeout = least, least
			g.join("a")
			b := g.join("b")
			l := lock{store: kvstore.NewHashStore(), self: 1, timeout: least, releaseTimeout: time.Second}
			err := l.with(t.Context(), func(ctx context.Context) error {
				after(ctx, time.Second)
				l.self++
				return l.with(ctx, func(context.Context) error { return nil })
			})
			if err != nil {
				t.Error(err)
			}
			g.net.change(func() { b.paused = true })
			b.store.set(func(int) fate { return hung })
			g.drop(b)
			g.noticed(b.Self().Incarnation)
			g.converge("a pause")
		})
	}
}
