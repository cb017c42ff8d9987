package coordtest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// guards checks that guards compare the create-revision only.
func guards(env *testEnv) {
	a, b := env.open(), env.open()
	first := env.commit(a, []coord.Guard{env.guard("k", 0)}, env.put("k", "1"))
	env.commitFails(b, coord.ErrConflict, []coord.Guard{env.guard("k", 0)}, env.put("k", "no"))
	env.commitFails(b, coord.ErrConflict, []coord.Guard{env.guard("k", first+1)}, env.put("k", "no"))
	env.commitFails(b, coord.ErrConflict, []coord.Guard{env.guard("none", first)}, env.put("none", "no"))

	// a put does not change the create-revision
	second := env.commit(b, []coord.Guard{env.guard("k", first)}, env.put("k", "2"))
	env.commit(a, []coord.Guard{env.guard("k", first), env.guard("none", 0)},
		env.put("other", "guarded by keys it does not write"))
	env.commitFails(a, coord.ErrConflict, []coord.Guard{env.guard("k", second)}, env.put("k", "no"))
	env.holds(a, map[string]string{"k": "2", "other": "guarded by keys it does not write"})

	env.commit(a, []coord.Guard{env.guard("k", first)}, env.del("k"))
	env.commitFails(b, coord.ErrConflict, []coord.Guard{env.guard("k", first)}, env.put("k", "no"))
	again := env.commit(b, []coord.Guard{env.guard("k", 0)}, env.put("k", "3"))
	// the key was created again
	env.commitFails(a, coord.ErrConflict, []coord.Guard{env.guard("k", first)}, env.put("k", "no"))
	env.commit(a, []coord.Guard{env.guard("k", again)}, env.put("k", "4"))
	env.holds(b, map[string]string{"k": "4", "other": "guarded by keys it does not write"})

	env.commit(a, []coord.Guard{env.guard("k", again)}) // a commit without ops only checks its guards
	env.commitFails(a, coord.ErrConflict, []coord.Guard{env.guard("k", first)})
}

// guardOfSession guards a writer by the key of another session.
func guardOfSession(env *testEnv) {
	leader, other := env.open(), env.open()
	epoch := env.commit(leader, []coord.Guard{env.guard("leader", 0)}, env.putOwned("leader", "a"))
	env.commit(leader, []coord.Guard{env.guard("leader", epoch)}, env.put("k", "1"))
	env.commitFails(other, coord.ErrConflict, []coord.Guard{env.guard("leader", 0)}, env.putOwned("leader", "b"))
	env.close(leader)
	next := env.commit(other, []coord.Guard{env.guard("leader", 0)}, env.putOwned("leader", "b"))
	if next <= epoch {
		env.Errorf("the second leader's create-revision is %d, the first one's was %d", next, epoch)
	}
	third := env.open()
	env.commitFails(third, coord.ErrConflict, []coord.Guard{env.guard("leader", epoch)}, env.put("k", "no"))
	env.holds(third, map[string]string{"leader": "b", "k": "1"})
}

func allOrNothing(env *testEnv) {
	a, b := env.open(), env.open()
	rev := env.commit(a, nil, env.put("k", "1"), env.put("gone", "1"))
	v := env.watch(b, "")
	want := map[string]string{"k": "1", "gone": "1"}
	v.awaitAll(want)
	for _, guards := range [][]coord.Guard{
		{env.guard("k", 0)},
		{env.guard("k", rev), env.guard("gone", 0)}, // the last guard fails
		{env.guard("none", rev), env.guard("k", rev)},
		{env.guard("k", rev), env.guard("none", rev), env.guard("gone", rev)},
	} {
		env.commitFails(a, coord.ErrConflict, guards, env.put("k", "no"), env.putOwned("new", "no"), env.del("gone"),
			env.putTTL("short", "no", env.KeyTTL))
	}
	env.holds(b, want)
	env.commit(a, []coord.Guard{env.guard("k", rev), env.guard("gone", rev)}, env.put("k", "2"), env.putOwned("new", "2"),
		env.del("gone"), env.putTTL("short", "2", 100*env.KeyTTL))
	v.awaitAll(map[string]string{"k": "2", "new": "2", "short": "2"})
	if n := v.count(); n != 2 {
		env.Errorf("one commit and four refused ones arrived as %q", v.batchStrings())
	}
}

// revisions checks that revisions increase with each commit of any client.
func revisions(env *testEnv) {
	stores := []coord.Store{env.open(), env.open()}
	var last coord.Revision
	for i := range 20 {
		rev := env.commit(stores[i%2], nil, env.put("k", fmt.Sprint(i)))
		if rev <= last || rev <= 0 {
			env.Fatalf("commit %d has revision %d, the one before had %d", i, rev, last)
		}
		last = rev
		if b := env.first(stores[(i+1)%2], ""); b.Revision < rev {
			env.Fatalf("a watch begins at revision %d, after a commit that returned %d", b.Revision, rev)
		}
	}
	const n = 64
	var mu sync.Mutex
	seen := make(map[coord.Revision]bool)
	env.together(n, func(i int) error {
		ctx, cancel := env.bounded()
		defer cancel()
		rev, err := stores[i%2].Commit(ctx, nil, []coord.Op{env.put(fmt.Sprint("at once ", i), "")})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && (seen[rev] || rev <= last) {
			err = fmt.Errorf("revision %d is not a new one", rev)
		}
		seen[rev] = true
		return err
	})
}

// oneWinner lets many clients create a key at the same time.
func oneWinner(env *testEnv) {
	var stores []coord.Store
	for range 8 {
		stores = append(stores, env.open())
	}
	v := env.watch(stores[0], "")
	for round := range 3 {
		key := fmt.Sprint("key ", round)
		var mu sync.Mutex
		won := make(map[string]coord.Revision)
		env.together(64, func(i int) error {
			ctx, cancel := env.bounded()
			defer cancel()
			me := fmt.Sprint("writer ", i)
			rev, err := stores[i%len(stores)].Commit(ctx, []coord.Guard{env.guard(key, 0)},
				[]coord.Op{env.put(key, me), env.put(me, key)})
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				won[me] = rev
			case !errors.Is(err, coord.ErrConflict):
				return err
			}
			return nil
		})
		if len(won) != 1 {
			env.Fatalf("%d of 64 created the key: %v", len(won), won)
		}
		for me, rev := range won {
			v.await("the winner's commit", func(got map[string]string) bool { return got[key] == me && got[me] == key })
			env.commit(stores[1], []coord.Guard{env.guard(key, rev)}, env.del(key), env.del(me))
		}
	}
	env.holds(stores[2], map[string]string{})
}

// together calls run n times concurrently and fails the case if a call returns an error.
func (env *testEnv) together(n int, run func(i int) error) {
	env.Helper()
	var group sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			<-start
			errs[i] = run(i)
		})
	}
	close(start)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		env.Fatal(err)
	}
}

// deletes checks that deletes of missing keys change nothing and reach no watch.
func deletes(env *testEnv) {
	s := env.open()
	v := env.watch(s, "")
	v.awaitAll(map[string]string{})
	env.commit(s, nil, env.del("none"))
	made := env.commit(s, nil, env.put("k", "1"), env.del("none"))
	v.awaitAll(map[string]string{"k": "1"})
	marked := env.del("k")
	marked.Value, marked.Owned, marked.TTL = []byte("unused"), true, env.KeyTTL
	deleted := env.commit(s, nil, marked)
	v.awaitAll(map[string]string{})
	want := []string{
		fmt.Sprintf("changes at %d: k=1 made in %d", made, made),
		fmt.Sprintf("changes at %d: k deleted", deleted),
	}
	if got := v.batchStrings()[1:]; fmt.Sprint(got) != fmt.Sprint(want) {
		env.Errorf("the watch delivered %q, want %q", got, want)
	}
	again := env.commit(s, []coord.Guard{env.guard("k", 0)}, env.put("k", "2"))
	if again <= deleted {
		env.Errorf("the key was created again in revision %d, and deleted in %d", again, deleted)
	}
}

// anyBytes checks that keys and values may contain any bytes.
func anyBytes(env *testEnv) {
	s := env.open()
	want := map[string]string{
		"":                         "the prefix itself",
		"empty":                    "",
		"a key with blanks":        " \n\t",
		"caf\u00e9/\u4e16\u754c":   "\u4e16",
		"zero \x00 byte":           "\x00",
		"\xff":                     "\xff\xfe not UTF-8",
		"\xff\xff":                 "{}",
		strings.Repeat("long", 99): strings.Repeat("v", 9999),
	}
	var ops []coord.Op
	for key, value := range want {
		ops = append(ops, env.put(key, value))
	}
	env.commit(s, nil, ops...)
	env.holds(env.open(), want)
	if got := env.first(s, "\xff").Events; len(got) != 2 {
		env.Errorf("%d keys begin with \\xff, want 2", len(got))
	}
}

// limits checks that a store applies what CheckCommit accepts and refuses everything else without a trace.
func limits(env *testEnv) {
	s := env.open()
	ops := func(n int) (ops []coord.Op) {
		for i := range n {
			ops = append(ops, env.put(fmt.Sprintf("%03d", i), "v"))
		}
		return ops
	}
	absent := func(n int) (guards []coord.Guard) {
		for i := range n {
			guards = append(guards, env.guard(fmt.Sprintf("%03d", i), 0))
		}
		return guards
	}
	// filled returns n ops whose keys and values have size bytes together.
	filled := func(size, n int) (ops []coord.Op) {
		for i := range n {
			key := fmt.Sprintf("f%d", i)
			share := size / (n - i)
			ops = append(ops, env.put(key, strings.Repeat("v", share-len(env.prefix)-len(key))))
			size -= share
		}
		return ops
	}
	for _, c := range []struct {
		name   string
		guards []coord.Guard
		ops    []coord.Op
		want   error
	}{
		{name: "the most ops and guards", guards: absent(coord.MaxOps), ops: ops(coord.MaxOps)},
		{name: "the most ops", ops: ops(coord.MaxOps)},
		{name: "an op more", ops: ops(coord.MaxOps + 1), want: coord.ErrTooLarge},
		{name: "a guard more", guards: absent(coord.MaxOps + 1), ops: ops(1), want: coord.ErrTooLarge},
		{name: "the most bytes", ops: filled(coord.MaxCommit, 1)},
		{name: "the most bytes, in many ops", ops: filled(coord.MaxCommit, 100)},
		{name: "a byte more", ops: filled(coord.MaxCommit+1, 1), want: coord.ErrTooLarge},
		{name: "a byte more, in many ops", ops: filled(coord.MaxCommit+1, 100), want: coord.ErrTooLarge},
	} {
		if c.want != nil {
			env.commitFails(s, c.want, c.guards, c.ops...)
			env.holds(s, map[string]string{})
			continue
		}
		want := make(map[string]string)
		owned, gone := make([]coord.Op, 0, len(c.ops)), make([]coord.Op, 0, len(c.ops))
		for _, op := range c.ops {
			key := strings.TrimPrefix(op.Key, env.prefix)
			want[key] = string(op.Value)
			owned, gone = append(owned, env.putOwned(key, want[key])), append(gone, env.del(key))
		}
		for _, ops := range [][]coord.Op{c.ops, owned} {
			env.commit(s, c.guards, ops...)
			if !maps.Equal(want, env.list(s)) {
				env.Errorf("%s: the store does not hold what was committed", c.name)
			}
			env.commit(s, nil, gone...)
		}
	}
	for name, ops := range map[string][]coord.Op{
		"an empty key": {env.put("k", ""), {Value: []byte("v")}},
		"a key twice":  {env.put("k", "1"), env.put("other", ""), env.put("k", "2")},
		"put, deleted": {env.put("k", "1"), env.del("k")},
	} {
		ctx, cancel := env.bounded()
		if _, err := s.Commit(ctx, nil, ops); err == nil || errors.Is(err, coord.ErrUnavailable) ||
			errors.Is(err, coord.ErrSessionLost) {
			env.Errorf("%s: Commit returned %v", name, err)
		}
		cancel()
	}
	env.holds(s, map[string]string{})
	env.alive(s)
}
