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

// kill checks that the keys of a dead client are deleted together.
func kill(env *testEnv) {
	a, b := env.openIdle(), env.open()
	v := env.watch(b, "")
	env.commit(a, nil, env.putOwned("k 1", "v"), env.putOwned("k 2", "v"), env.put("plain", "v"))
	v.awaitAll(map[string]string{"k 1": "v", "k 2": "v", "plain": "v"})
	n := v.count()
	env.Kill(a)
	v.awaitAll(map[string]string{"plain": "v"})
	if got := v.batchStrings()[n:]; len(got) != 1 {
		env.Errorf("the end of a session arrived as %q, want one batch", got)
	}
}

// cutShort cuts the network for less than the TTL. The session must survive, and the watch must deliver everything that
// happened meanwhile, including deletes.
func cutShort(env *testEnv) {
	a, b := env.open(), env.open()
	made := env.commit(b, nil, env.put("deleted", "v"), env.put("created again", "1"), env.put("changed", "1"))
	env.commit(a, nil, env.putOwned("own", "v"))
	v := env.watch(a, "")
	v.awaitAll(map[string]string{"deleted": "v", "created again": "1", "changed": "1", "own": "v"})
	env.mustKeepAlive(a) // restart the session's TTL

	env.Cut(a)
	healed := false
	defer func() {
		if !healed {
			env.Heal(a)
		}
	}()
	env.commit(b, nil, env.del("deleted"), env.del("created again"), env.put("passing", "v"))
	again := env.commit(b, nil, env.put("created again", "2"), env.put("changed", "2"))
	env.commit(b, nil, env.del("passing"))
	ctx, cancel := context.WithTimeout(env.Context(), env.TTL/10)
	defer cancel()
	start := time.Now()
	if err := a.KeepAlive(ctx); !errors.Is(err, coord.ErrUnavailable) {
		env.Errorf("KeepAlive over a cut network returned %v, want %v", err, coord.ErrUnavailable)
	}
	if _, err := a.Commit(ctx, nil, []coord.Op{env.put("cut off", "v")}); !errors.Is(err, coord.ErrUnavailable) {
		env.Errorf("Commit over a cut network returned %v, want %v", err, coord.ErrUnavailable)
	}
	if took := time.Since(start); took > env.TTL/2 {
		env.Fatalf("two calls with a timeout of %v took %v", env.TTL/10, took)
	}
	env.alive(a)
	env.Heal(a)
	healed = true

	env.retryCommit(a, env.put("after", "v"))
	env.commit(b, nil, env.del("cut off")) // it may have been applied
	want := map[string]string{"created again": "2", "changed": "2", "own": "v", "after": "v"}
	v.awaitAll(want)
	env.holds(a, want)
	v.mu.Lock()
	defer v.mu.Unlock()
	if got := v.state[env.prefix+"created again"].Create; got != again || again <= made {
		env.Errorf("the watch says that the key was made in %d, want %d", got, again)
	}
	env.alive(a)
}

// mustKeepAlive renews a session.
func (env *testEnv) mustKeepAlive(s coord.Store) {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	if err := s.KeepAlive(ctx); err != nil {
		env.Fatalf("KeepAlive: %v", err)
	}
}

// cutLong cuts the network until the session has ended. The other clients must see that. The cut client cannot know
// before it hears from the store.
func cutLong(env *testEnv) {
	a, b := env.open(), env.open()
	own, seen := env.watch(a, ""), env.watch(b, "")
	env.commit(a, nil, env.putOwned("own", "v"), env.put("plain", "v"))
	seen.awaitAll(map[string]string{"own": "v", "plain": "v"})
	own.awaitAll(map[string]string{"own": "v", "plain": "v"})
	env.Cut(a)
	seen.awaitAll(map[string]string{"plain": "v"})
	env.alive(a)
	env.Heal(a)
	env.sessionLost(a)
	if err := own.ended(); !errors.Is(err, coord.ErrSessionLost) {
		env.Errorf("a watch of the lost session returned %v, want %v", err, coord.ErrSessionLost)
	}
	env.allCallsLost(a)
	env.holds(b, map[string]string{"plain": "v"})
}

// cutClose closes a client without a network. Close must return in time, and the session must expire.
func cutClose(env *testEnv) {
	a, b := env.open(), env.open()
	v := env.watch(b, "")
	env.commit(a, nil, env.putOwned("own", "v"))
	v.awaitAll(map[string]string{"own": "v"})
	env.Cut(a)
	ctx, cancel := context.WithTimeout(env.Context(), env.TTL/4)
	defer cancel()
	start := time.Now()
	if err := a.Close(ctx); err == nil {
		env.Error("Close succeeded over a cut network")
	}
	if took := time.Since(start); took > env.TTL/4+10*time.Second {
		env.Errorf("Close took %v, and had %v", took, env.TTL/4)
	}
	env.sessionLost(a)
	v.awaitAll(map[string]string{})
	env.Heal(a)
}

// breakOften repeatedly resets a client's connections while another client changes keys.
func breakOften(env *testEnv) {
	a, b := env.open(), env.open()
	env.commit(a, nil, env.putOwned("own", "v"))
	env.commit(b, nil, env.put("1", ""), env.put("2", ""))
	v := env.watchWith(a, "", func(got map[string]string) error {
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
		env.commit(b, nil, env.put("1", value), env.put("2", value), env.put("k"+value, value))
		env.Break(a)
		env.commit(b, nil, env.del("k"+strconv.Itoa(i-2)), env.put("passing", ""))
		env.commit(b, nil, env.del("passing"))
		if i%2 == 0 {
			env.retryCommit(a, env.put("by a", value))
			want["by a"] = value
		}
		v.await("what is there", func(got map[string]string) bool { return maps.Equal(want, got) })
		env.alive(a)
	}
	env.holds(a, want)
	env.retryKeepAlive(a)
}

// retryKeepAlive renews a session whose connection may be new.
func (env *testEnv) retryKeepAlive(s coord.Store) {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	for {
		err := s.KeepAlive(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !errors.Is(err, coord.ErrUnavailable) {
			env.Fatalf("KeepAlive: %v", err)
		}
	}
}
