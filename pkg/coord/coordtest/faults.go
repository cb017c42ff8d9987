package coordtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// kill ends a client without a word: its keys vanish, together.
func kill(l *testEnv) {
	a, b := l.openIdle(), l.open()
	v := l.watch(b, "")
	l.commit(a, nil, l.putOwned("k 1", "v"), l.putOwned("k 2", "v"), l.put("plain", "v"))
	v.awaitAll(map[string]string{"k 1": "v", "k 2": "v", "plain": "v"})
	n := v.count()
	l.Kill(a)
	v.awaitAll(map[string]string{"plain": "v"})
	if got := v.batchStrings()[n:]; len(got) != 1 {
		l.Errorf("the end of a session was told as %q, want one batch", got)
	}
}

// cutShort makes the network swallow all for less than the TTL: the session lives, and the watch hides nothing of
// what happened meanwhile, deletes least of all.
func cutShort(l *testEnv) {
	a, b := l.open(), l.open()
	made := l.commit(b, nil, l.put("deleted", "v"), l.put("made anew", "1"), l.put("changed", "1"))
	l.commit(a, nil, l.putOwned("own", "v"))
	v := l.watch(a, "")
	v.awaitAll(map[string]string{"deleted": "v", "made anew": "1", "changed": "1", "own": "v"})
	l.mustKeepAlive(a) // so that the session has all of its time

	l.Cut(a)
	healed := false
	defer func() {
		if !healed {
			l.Heal(a)
		}
	}()
	l.commit(b, nil, l.del("deleted"), l.del("made anew"), l.put("passing", "v"))
	anew := l.commit(b, nil, l.put("made anew", "2"), l.put("changed", "2"))
	l.commit(b, nil, l.del("passing"))
	ctx, cancel := context.WithTimeout(l.Context(), l.TTL/10)
	defer cancel()
	start := time.Now()
	if err := a.KeepAlive(ctx); !errors.Is(err, coord.ErrUnavailable) {
		l.Errorf("KeepAlive over a cut network returned %v, want %v", err, coord.ErrUnavailable)
	}
	if _, err := a.Commit(ctx, nil, []coord.Op{l.put("cut off", "v")}); !errors.Is(err, coord.ErrUnavailable) {
		l.Errorf("Commit over a cut network returned %v, want %v", err, coord.ErrUnavailable)
	}
	if took := time.Since(start); took > l.TTL/2 {
		l.Fatalf("two calls whose time was up after %v took %v", l.TTL/10, took)
	}
	l.alive(a)
	l.Heal(a)
	healed = true

	l.retryCommit(a, l.put("after", "v"))
	l.commit(b, nil, l.del("cut off")) // it may have been done
	want := map[string]string{"made anew": "2", "changed": "2", "own": "v", "after": "v"}
	v.awaitAll(want)
	l.holds(a, want)
	v.mu.Lock()
	defer v.mu.Unlock()
	if got := v.state[l.prefix+"made anew"].Create; got != anew || anew <= made {
		l.Errorf("the watch says that the key was made in %d, want %d", got, anew)
	}
	l.alive(a)
}

// keepOnce renews a session, now.
func (l *testEnv) mustKeepAlive(s coord.Store) {
	l.Helper()
	ctx, cancel := l.bounded()
	defer cancel()
	if err := s.KeepAlive(ctx); err != nil {
		l.Fatalf("KeepAlive: %v", err)
	}
}

// cutLong makes the network swallow all until the session is over: the others see that; the client cannot know
// before it hears from the store.
func cutLong(l *testEnv) {
	a, b := l.open(), l.open()
	own, seen := l.watch(a, ""), l.watch(b, "")
	l.commit(a, nil, l.putOwned("own", "v"), l.put("plain", "v"))
	seen.awaitAll(map[string]string{"own": "v", "plain": "v"})
	own.awaitAll(map[string]string{"own": "v", "plain": "v"})
	l.Cut(a)
	seen.awaitAll(map[string]string{"plain": "v"})
	l.alive(a)
	l.Heal(a)
	l.sessionLost(a)
	if err := own.ended(); !errors.Is(err, coord.ErrSessionLost) {
		l.Errorf("a watch of the lost session returned %v, want %v", err, coord.ErrSessionLost)
	}
	l.allCallsLost(a)
	l.holds(b, map[string]string{"plain": "v"})
}

// cutClose closes a client that nobody hears: that takes no longer than it may, and the session ends by silence.
func cutClose(l *testEnv) {
	a, b := l.open(), l.open()
	v := l.watch(b, "")
	l.commit(a, nil, l.putOwned("own", "v"))
	v.awaitAll(map[string]string{"own": "v"})
	l.Cut(a)
	ctx, cancel := context.WithTimeout(l.Context(), l.TTL/4)
	defer cancel()
	start := time.Now()
	if err := a.Close(ctx); err == nil {
		l.Error("Close said that the store has heard of it, over a cut network")
	}
	if took := time.Since(start); took > l.Timeout/2 {
		l.Errorf("Close took %v, and had %v", took, l.TTL/4)
	}
	l.sessionLost(a)
	v.awaitAll(map[string]string{})
	l.Heal(a)
}

// breakOften resets a client's connections again and again while another changes keys.
func breakOften(l *testEnv) {
	a, b := l.open(), l.open()
	l.commit(a, nil, l.putOwned("own", "v"))
	l.commit(b, nil, l.put("1", ""), l.put("2", ""))
	v := l.watchWith(a, "", func(got map[string]string) error {
		if got["own"] != "v" || got["1"] != got["2"] {
			return fmt.Errorf("a commit is split, or the session's key is gone: %v", got)
		}
		return nil
	})
	want := map[string]string{"own": "v"}
	for i := range 10 {
		value := strconv.Itoa(i)
		want["1"], want["2"], want["k"+value] = value, value, value
		delete(want, "k"+strconv.Itoa(i-2))
		l.commit(b, nil, l.put("1", value), l.put("2", value), l.put("k"+value, value))
		l.Break(a)
		l.commit(b, nil, l.del("k"+strconv.Itoa(i-2)), l.put("passing", ""))
		l.commit(b, nil, l.del("passing"))
		if i%2 == 0 {
			l.retryCommit(a, l.put("by a", value))
			want["by a"] = value
		}
		v.await("what is there", func(got map[string]string) bool { return maps.Equal(want, got) })
		l.alive(a)
	}
	l.holds(a, want)
	l.retryKeepAlive(a)
}

// keepOnceMore renews a session whose connection may be new.
func (l *testEnv) retryKeepAlive(s coord.Store) {
	l.Helper()
	ctx, cancel := l.bounded()
	defer cancel()
	for {
		err := s.KeepAlive(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable) {
			l.Fatalf("KeepAlive: %v", err)
		}
	}
}
