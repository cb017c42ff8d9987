package coordtest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

func sessionIDs(env *testEnv) {
	seen := make(map[coord.SessionID]bool)
	for i := range 6 {
		s := env.open()
		id := s.Session()
		if id == "" || seen[id] {
			env.Fatalf("session %d has the id %q, which is empty or was there before", i, id)
		}
		seen[id] = true
		if env.TTL > 0 && s.TTL() != env.TTL {
			env.Errorf("TTL returned %v, the harness says %v", s.TTL(), env.TTL)
		}
		env.commit(s, nil, env.putOwned("k", "v"))
		if again := s.Session(); again != id {
			env.Errorf("the session's id changed from %q to %q", id, again)
		}
		env.alive(s)
		if i%2 == 0 {
			env.close(s)
		}
	}
}

// closeEndsSession checks that Close deletes all keys of a session in one batch and makes the store unusable.
func closeEndsSession(env *testEnv) {
	a, b := env.open(), env.open()
	env.commit(a, nil, env.putOwned("own 1", "v"), env.put("plain", "v"))
	env.commit(a, nil, env.putOwned("own 2", "v"), env.putOwned("own 3", "v"))
	env.commit(a, nil, env.putOwned("deleted before", "v"))
	env.commit(a, nil, env.del("deleted before"))
	env.commit(b, nil, env.putOwned("of another", "v"))
	seen, own := env.watch(b, ""), env.watch(a, "")
	all := map[string]string{"own 1": "v", "own 2": "v", "own 3": "v", "plain": "v", "of another": "v"}
	seen.awaitAll(all)
	own.awaitAll(all)
	before := seen.count()

	env.close(a)
	left := map[string]string{"plain": "v", "of another": "v"}
	env.holds(b, left) // before the watch, which may lag behind
	seen.awaitAll(left)
	if got := seen.batchStrings()[before:]; len(got) != 1 {
		env.Errorf("the end of a session arrived as %q, want one batch", got)
	}
	if err := own.ended(); !errors.Is(err, coord.ErrSessionLost) {
		env.Errorf("a watch of the closed session returned %v, want %v", err, coord.ErrSessionLost)
	}
	env.allCallsLost(a)
	env.holds(b, left)
	ctx, cancel := env.bounded()
	defer cancel()
	_ = a.Close(ctx) // must not hang or do harm
	env.alive(b)
}

// owners checks that a key belongs to the session that wrote it last.
func owners(env *testEnv) {
	a, b, other := env.open(), env.open(), env.open()
	env.commit(a, nil, env.putOwned("taken over", "a"), env.putOwned("freed", "a"), env.put("bound", "nobody's"))
	env.commit(b, nil, env.putOwned("taken over", "b"), env.put("freed", "nobody's"))
	env.commit(a, nil, env.putOwned("bound", "a"))
	env.close(a)
	env.holds(other, map[string]string{"taken over": "b", "freed": "nobody's"})
	env.close(b)
	env.holds(other, map[string]string{"freed": "nobody's"})
}

func keepAlive(env *testEnv) {
	a, b := env.open(), env.open()
	v := env.watch(b, "")
	env.commit(a, nil, env.putOwned("k", "v"))
	v.awaitAll(map[string]string{"k": "v"})
	n := v.count()
	select { // the promise is about time
	case <-time.After(5 * env.TTL / 2):
	case <-a.Lost():
	}
	env.alive(a)
	env.commit(b, nil, env.put("marker", ""))
	v.awaitAll(map[string]string{"k": "v", "marker": ""})
	if got := v.batchStrings()[n:]; len(got) != 1 {
		env.Errorf("a session that was kept alive changed keys: %q", got)
	}
}

// watchLag is how late a watch may deliver a commit that preceded a KeepAlive, if the store is no [coord.Getter]. It
// allows for the delay until a busy machine runs a goroutine; in a bubble there is no delay.
const watchLag = 2 * time.Second

// keepAliveFollowsCommits checks that a session that has been kept alive has seen, or can get, all earlier commits.
func keepAliveFollowsCommits(env *testEnv) {
	a, b := env.open(), env.open()
	v := env.watch(a, "")
	getter, lags := a.(coord.Getter)
	ctx, cancel := env.bounded()
	defer cancel()
	for i := range 50 {
		value := fmt.Sprint(i)
		env.commit(b, nil, env.put("k", value))
		if err := a.KeepAlive(ctx); err != nil {
			env.Fatalf("KeepAlive: %v", err)
		}
		if lags {
			if got, err := getter.Get(ctx, env.prefix+"k"); err != nil || string(got) != value {
				env.Fatalf("Get returned %q, %v after a commit of %q", got, err, value)
			}
			continue
		}
		answered := time.Now()
		v.awaitAll(map[string]string{"k": value})
		if late := time.Since(answered); late > watchLag {
			env.Fatalf("a watch delivered a commit %v after a later KeepAlive had returned; such a store must be a "+
				"coord.Getter", late)
		}
	}
	if lags {
		if got, err := getter.Get(ctx, env.prefix+"none"); err != nil || got != nil {
			env.Errorf("Get of a key that does not exist returned %q, %v", got, err)
		}
	}
}

// expiry checks that an idle session ends after its TTL, not earlier, and that its keys are deleted together.
func expiry(env *testEnv) {
	a, b := env.openIdle(), env.open()
	seen := env.watch(b, "")
	env.commit(a, nil, env.putOwned("k 1", "v"), env.putOwned("k 2", "v"), env.put("plain", "v"))
	all := map[string]string{"k 1": "v", "k 2": "v", "plain": "v"}
	seen.awaitAll(all)
	n := seen.count()

	ctx, cancel := env.bounded()
	defer cancel()
	start := time.Now()
	if err := a.KeepAlive(ctx); err != nil {
		env.Fatalf("KeepAlive: %v", err)
	}
	seen.awaitAll(map[string]string{"plain": "v"})
	if lived := time.Since(start); lived < env.TTL {
		env.Errorf("the session lived for %v after KeepAlive, want %v", lived, env.TTL)
	}
	if got := seen.batchStrings()[n:]; len(got) != 1 {
		env.Errorf("the end of a session arrived as %q, want one batch", got)
	}
	env.commitFails(a, coord.ErrSessionLost, nil, env.put("plain", "no"))
	env.commitFails(a, coord.ErrSessionLost, nil, env.putOwned("k 1", "no"))
	env.allCallsLost(a)
	env.holds(b, map[string]string{"plain": "v"})
}

// expiryAsked checks what KeepAlive and Watch of an expired session return.
func expiryAsked(env *testEnv) {
	a, b := env.openIdle(), env.open()
	own, seen := env.watch(a, ""), env.watch(b, "")
	env.commit(a, nil, env.putOwned("k", "v"))
	seen.awaitAll(map[string]string{"k": "v"})
	seen.awaitAll(map[string]string{})
	ctx, cancel := env.bounded()
	defer cancel()
	if err := a.KeepAlive(ctx); !errors.Is(err, coord.ErrSessionLost) {
		env.Errorf("KeepAlive returned %v, want %v", err, coord.ErrSessionLost)
	}
	env.sessionLost(a)
	if err := own.ended(); !errors.Is(err, coord.ErrSessionLost) {
		env.Errorf("a watch of the lost session returned %v, want %v", err, coord.ErrSessionLost)
	}
}

// keyTTL checks that a key is deleted after its TTL, even if its writer has closed.
func keyTTL(env *testEnv) {
	a, b := env.open(), env.open()
	v := env.watch(b, "")
	start := time.Now()
	env.commit(a, nil, env.putTTL("short", "v", env.KeyTTL), env.putTTL("long", "v", time.Hour), env.put("plain", "v"))
	env.close(a)
	v.awaitAll(map[string]string{"short": "v", "long": "v", "plain": "v"})
	v.awaitAll(map[string]string{"long": "v", "plain": "v"})
	if lived := time.Since(start); lived < env.KeyTTL*9/10 {
		env.Errorf("a key with a TTL of %v lived for %v", env.KeyTTL, lived)
	}
	env.commit(b, []coord.Guard{env.guard("short", 0)}, env.put("short", "again"))
}

// keyTTLRenewed checks that each put restarts the TTL.
func keyTTLRenewed(env *testEnv) {
	s := env.open()
	v := env.watch(s, "")
	made := env.commit(s, nil, env.putTTL("k", "0", env.KeyTTL))
	const puts = 4
	var start time.Time
	for i := range puts {
		select { // the promise is about time
		case <-time.After(env.KeyTTL / 2):
		case <-env.Context().Done():
		}
		start = time.Now()
		env.commit(s, []coord.Guard{env.guard("k", made)}, env.putTTL("k", fmt.Sprint(i+1), env.KeyTTL))
	}
	v.awaitAll(map[string]string{"k": fmt.Sprint(puts)})
	v.awaitAll(map[string]string{})
	if lived := time.Since(start); lived < env.KeyTTL*9/10 {
		env.Errorf("a key with a TTL of %v lived for %v after its last put", env.KeyTTL, lived)
	}
	for _, batch := range v.batchStrings()[1:] {
		if !strings.Contains(batch, fmt.Sprintf("made in %d", made)) && !strings.Contains(batch, "k deleted") {
			env.Errorf("a put with a TTL changed the create-revision %d: %s", made, batch)
		}
	}
}

// keyTTLTaken checks that a put without a TTL, or by an owner, removes the TTL.
func keyTTLTaken(env *testEnv) {
	a, b := env.open(), env.open()
	v := env.watch(b, "")
	env.commit(a, nil, env.putTTL("freed", "v", env.KeyTTL), env.putTTL("owned", "v", env.KeyTTL),
		env.putOwned("given", "v"))
	env.commit(a, nil, env.put("freed", "v"), env.putOwned("owned", "v"), env.putTTL("given", "v", time.Hour))
	env.commit(b, nil, env.putTTL("clock", "v", env.KeyTTL*2))
	v.await("the clock's key", func(got map[string]string) bool { return got["clock"] == "v" })
	v.await("end of the clock's key", func(got map[string]string) bool { return got["clock"] == "" })
	want := map[string]string{"freed": "v", "owned": "v", "given": "v"}
	if got := env.list(b); !maps.Equal(want, got) {
		env.Errorf("the store holds %v, want %v", got, want)
	}
	env.close(a)
	env.holds(b, map[string]string{"freed": "v", "given": "v"})
}
