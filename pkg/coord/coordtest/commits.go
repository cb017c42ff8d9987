package coordtest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// guards tells keys apart by their create-revision alone.
func guards(l *testEnv) {
	a, b := l.open(), l.open()
	first := l.commit(a, []coord.Guard{l.guard("k", 0)}, l.put("k", "1"))
	l.commitFails(b, coord.ErrConflict, []coord.Guard{l.guard("k", 0)}, l.put("k", "no"))
	l.commitFails(b, coord.ErrConflict, []coord.Guard{l.guard("k", first+1)}, l.put("k", "no"))
	l.commitFails(b, coord.ErrConflict, []coord.Guard{l.guard("none", first)}, l.put("none", "no"))

	second := l.commit(b, []coord.Guard{l.guard("k", first)}, l.put("k", "2")) // a put leaves it as it is
	l.commit(a, []coord.Guard{l.guard("k", first), l.guard("none", 0)}, l.put("other", "guarded by keys it does not write"))
	l.commitFails(a, coord.ErrConflict, []coord.Guard{l.guard("k", second)}, l.put("k", "no"))
	l.holds(a, map[string]string{"k": "2", "other": "guarded by keys it does not write"})

	l.commit(a, []coord.Guard{l.guard("k", first)}, l.del("k"))
	l.commitFails(b, coord.ErrConflict, []coord.Guard{l.guard("k", first)}, l.put("k", "no"))
	again := l.commit(b, []coord.Guard{l.guard("k", 0)}, l.put("k", "3"))
	l.commitFails(a, coord.ErrConflict, []coord.Guard{l.guard("k", first)}, l.put("k", "no")) // made anew
	l.commit(a, []coord.Guard{l.guard("k", again)}, l.put("k", "4"))
	l.holds(b, map[string]string{"k": "4", "other": "guarded by keys it does not write"})

	l.commit(a, []coord.Guard{l.guard("k", again)}) // only asks
	l.commitFails(a, coord.ErrConflict, []coord.Guard{l.guard("k", first)})
}

// guardOfSession fences a writer by a key of another session.
func guardOfSession(l *testEnv) {
	leader, other := l.open(), l.open()
	epoch := l.commit(leader, []coord.Guard{l.guard("leader", 0)}, l.putOwned("leader", "a"))
	l.commit(leader, []coord.Guard{l.guard("leader", epoch)}, l.put("k", "1"))
	l.commitFails(other, coord.ErrConflict, []coord.Guard{l.guard("leader", 0)}, l.putOwned("leader", "b"))
	l.close(leader)
	next := l.commit(other, []coord.Guard{l.guard("leader", 0)}, l.putOwned("leader", "b"))
	if next <= epoch {
		l.Errorf("the second leader's create-revision is %d, the first one's was %d", next, epoch)
	}
	third := l.open()
	l.commitFails(third, coord.ErrConflict, []coord.Guard{l.guard("leader", epoch)}, l.put("k", "no"))
	l.holds(third, map[string]string{"leader": "b", "k": "1"})
}

func allOrNothing(l *testEnv) {
	a, b := l.open(), l.open()
	rev := l.commit(a, nil, l.put("k", "1"), l.put("gone", "1"))
	v := l.watch(b, "")
	want := map[string]string{"k": "1", "gone": "1"}
	v.awaitAll(want)
	for _, guards := range [][]coord.Guard{
		{l.guard("k", 0)},
		{l.guard("k", rev), l.guard("gone", 0)}, // the last one fails
		{l.guard("none", rev), l.guard("k", rev)},
		{l.guard("k", rev), l.guard("none", rev), l.guard("gone", rev)},
	} {
		l.commitFails(a, coord.ErrConflict, guards, l.put("k", "no"), l.putOwned("new", "no"), l.del("gone"), l.putTTL("short", "no", l.keyTTL()))
	}
	l.holds(b, want)
	l.commit(a, []coord.Guard{l.guard("k", rev), l.guard("gone", rev)}, l.put("k", "2"), l.putOwned("new", "2"), l.del("gone"), l.putTTL("short", "2", 100*l.keyTTL()))
	v.awaitAll(map[string]string{"k": "2", "new": "2", "short": "2"})
	if n := v.count(); n != 2 {
		l.Errorf("one commit and four refused ones were told as %q", v.batchStrings())
	}
}

// revisions rise with each commit, whoever makes it.
func revisions(l *testEnv) {
	stores := []coord.Store{l.open(), l.open()}
	var last coord.Revision
	for i := range 20 {
		rev := l.commit(stores[i%2], nil, l.put("k", fmt.Sprint(i)))
		if rev <= last || rev <= 0 {
			l.Fatalf("commit %d has revision %d, the one before had %d", i, rev, last)
		}
		last = rev
		if b := l.first(stores[(i+1)%2], ""); b.Revision < rev {
			l.Fatalf("a watch begins at revision %d, after a commit that returned %d", b.Revision, rev)
		}
	}
	const n = 64
	var mu sync.Mutex
	seen := make(map[coord.Revision]bool)
	l.together(n, func(i int) error {
		ctx, cancel := l.bounded()
		defer cancel()
		rev, err := stores[i%2].Commit(ctx, nil, []coord.Op{l.put(fmt.Sprint("at once ", i), "")})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && (seen[rev] || rev <= last) {
			err = fmt.Errorf("revision %d is not a new one", rev)
		}
		seen[rev] = true
		return err
	})
}

// oneWinner lets many create a key at once.
func oneWinner(l *testEnv) {
	var stores []coord.Store
	for range 8 {
		stores = append(stores, l.open())
	}
	v := l.watch(stores[0], "")
	for round := range 3 {
		key := fmt.Sprint("key ", round)
		var mu sync.Mutex
		won := make(map[string]coord.Revision)
		l.together(64, func(i int) error {
			ctx, cancel := l.bounded()
			defer cancel()
			me := fmt.Sprint("writer ", i)
			rev, err := stores[i%len(stores)].Commit(ctx, []coord.Guard{l.guard(key, 0)}, []coord.Op{l.put(key, me), l.put(me, key)})
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
			l.Fatalf("%d of 64 created the key: %v", len(won), won)
		}
		for me, rev := range won {
			v.await("the winner's commit", func(got map[string]string) bool { return got[key] == me && got[me] == key })
			l.commit(stores[1], []coord.Guard{l.guard(key, rev)}, l.del(key), l.del(me))
		}
	}
	l.holds(stores[2], map[string]string{})
}

// together runs n at once and reports what they return.
func (l *testEnv) together(n int, run func(i int) error) {
	l.Helper()
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
		l.Fatal(err)
	}
}

// deletes of keys that are not there do nothing, and nobody sees them.
func deletes(l *testEnv) {
	s := l.open()
	v := l.watch(s, "")
	v.awaitAll(map[string]string{})
	l.commit(s, nil, l.del("none"))
	made := l.commit(s, nil, l.put("k", "1"), l.del("none"))
	v.awaitAll(map[string]string{"k": "1"})
	marked := l.del("k")
	marked.Value, marked.Owned, marked.TTL = []byte("unused"), true, l.keyTTL()
	deleted := l.commit(s, nil, marked)
	v.awaitAll(map[string]string{})
	want := []string{fmt.Sprintf("changes at %d: k=1 made in %d", made, made), fmt.Sprintf("changes at %d: k deleted", deleted)}
	if got := v.batchStrings()[1:]; fmt.Sprint(got) != fmt.Sprint(want) {
		l.Errorf("the watch told %q, want %q", got, want)
	}
	again := l.commit(s, []coord.Guard{l.guard("k", 0)}, l.put("k", "2"))
	if again <= deleted {
		l.Errorf("the key was made anew in revision %d, and deleted in %d", again, deleted)
	}
}

// anyBytes may be in keys and values.
func anyBytes(l *testEnv) {
	s := l.open()
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
		ops = append(ops, l.put(key, value))
	}
	l.commit(s, nil, ops...)
	l.holds(l.open(), want)
	if got := l.first(s, "\xff").Events; len(got) != 2 {
		l.Errorf("%d keys begin with \\xff, want 2", len(got))
	}
}

// limits of a commit: what CheckCommit lets pass is done, all else is refused without a trace.
func limits(l *testEnv) {
	s := l.open()
	ops := func(n int) (ops []coord.Op) {
		for i := range n {
			ops = append(ops, l.put(fmt.Sprintf("%03d", i), "v"))
		}
		return ops
	}
	absent := func(n int) (guards []coord.Guard) {
		for i := range n {
			guards = append(guards, l.guard(fmt.Sprintf("%03d", i), 0))
		}
		return guards
	}
	// filled has ops whose keys and values together are of a size.
	filled := func(size, n int) (ops []coord.Op) {
		for i := range n {
			key := fmt.Sprintf("f%d", i)
			share := size / (n - i)
			ops = append(ops, l.put(key, strings.Repeat("v", share-len(l.prefix)-len(key))))
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
			l.commitFails(s, c.want, c.guards, c.ops...)
			l.holds(s, map[string]string{})
			continue
		}
		want := make(map[string]string)
		owned, gone := make([]coord.Op, 0, len(c.ops)), make([]coord.Op, 0, len(c.ops))
		for _, op := range c.ops {
			key := strings.TrimPrefix(op.Key, l.prefix)
			want[key] = string(op.Value)
			owned, gone = append(owned, l.putOwned(key, want[key])), append(gone, l.del(key))
		}
		for _, ops := range [][]coord.Op{c.ops, owned} {
			l.commit(s, c.guards, ops...)
			if !maps.Equal(want, l.list(s)) {
				l.Errorf("%s: the store does not hold what was committed", c.name)
			}
			l.commit(s, nil, gone...)
		}
	}
	for name, ops := range map[string][]coord.Op{
		"an empty key": {l.put("k", ""), {Value: []byte("v")}},
		"a key twice":  {l.put("k", "1"), l.put("other", ""), l.put("k", "2")},
		"put, deleted": {l.put("k", "1"), l.del("k")},
	} {
		ctx, cancel := l.bounded()
		if _, err := s.Commit(ctx, nil, ops); err == nil || errors.Is(err, coord.ErrUnavailable) || errors.Is(err, coord.ErrSessionLost) {
			l.Errorf("%s: Commit returned %v", name, err)
		}
		cancel()
	}
	l.holds(s, map[string]string{})
	l.alive(s)
}
