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

// New members find a quiesced, unreachable member gone. The quiesced member evicts nobody and does not report its own
// eviction.
func TestDynamicQuiesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := newGroup(t, memoryStore())
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
		sleep(t.Context(), time.Minute)
		g.checkViews("a suspicion by a closing member")
		g.net.change(func() { dead.dead = false })
		g.drop(closing)
		g.join("d")
		g.checkViews("a join while another closes")
		synctest.Wait()
		select {
		case <-closing.Done():
			t.Error("Done is closed before Close")
		default:
		}
		if seen := len(closing.View().Members); seen != 3 {
			t.Errorf("its view has %d members", seen)
		}
		closing.Close()
		<-closing.Done()
		if closing.Err() != nil || log.Len() > 0 {
			t.Errorf("it ended with %v, log %s", closing.Err(), log.String())
		}
	})
}

// Quiesce ends a running Join and prevents another one.
func TestDynamicQuiesceEndsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		a := g.join("a")
		h := g.newHost("b")
		g.net.change(func() { g.net.cuts[[2]uint64{h.self.Incarnation, 0}] = true })
		result := make(chan error)
		go func() { result <- h.Join(t.Context()) }()
		sleep(t.Context(), g.opts.SyncTimeout/2)
		h.Quiesce()
		if err := <-result; !errors.Is(err, ErrShutdown) {
			t.Errorf("join: %v", err)
		}
		if err := h.Join(t.Context()); !errors.Is(err, ErrShutdown) {
			t.Errorf("second join: %v", err)
		}
		synctest.Wait()
		g.checkViews("a join that was closed")
		a.Quiesce()
		g.leave(a)
		<-a.Done()
	})
}

// A worker that is evicted during its Join gets ErrEvicted.
func TestDynamicEvictedWhileJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
		a := g.join("a")
		h := g.newHost("b")
		g.net.change(func() { g.net.cuts[[2]uint64{h.self.Incarnation, 0}] = true })
		result := make(chan error)
		go func() { result <- h.Join(t.Context()) }()
		sleep(t.Context(), g.opts.SyncTimeout/2)
		if _, err := a.evict(t.Context(), a.tracker.current(), h.Self()); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, ErrEvicted) || errors.Is(err, ErrShutdown) {
			t.Errorf("join: %v", err)
		}
		if !errors.Is(h.Err(), ErrEvicted) {
			t.Errorf("its state: %v", h.Err())
		}
		synctest.Wait()
		g.checkViews("an eviction")
	})
}

// A reply that is sent as late as possible leaves no key.
func TestDynamicAnswersWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, memoryStore())
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

// The smallest timeouts cause no error, although they leave no time for replies.
func TestDynamicSmallestTimeouts(t *testing.T) {
	for _, least := range []time.Duration{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, memoryStore())
			g.opts.LockTimeout, g.opts.ReplyTimeout = least, least
			g.join("a")
			b := g.join("b")
			l := lock{store: kvstore.NewHashStore(), self: 1, timeout: least, releaseTimeout: time.Second}
			err := l.with(t.Context(), func(ctx context.Context) error {
				sleep(ctx, time.Second)
				l.self++
				return l.with(ctx, func(context.Context) error { return nil })
			})
			if err != nil {
				t.Error(err)
			}
			g.net.change(func() { b.paused = true })
			b.store.set(func(int) outcome { return hung })
			g.drop(b)
			g.neighborsSuspect(b.Self().Incarnation)
			g.waitViews("a pause")
		})
	}
}
