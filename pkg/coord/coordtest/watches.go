package coordtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// watchBatches waits for each batch before it commits the next change, so that the batches are predictable.
func watchBatches(env *testEnv) {
	a, b := env.open(), env.open()
	made := env.commit(a, nil, env.put("a", "1"), env.putOwned("b", "1"))
	put := env.commit(b, nil, env.put("a", "2"))
	v := env.watch(b, "")
	v.awaitAll(map[string]string{"a": "2", "b": "1"})
	first := env.first(a, "").Revision
	if first < put {
		env.Errorf("a watch begins at %d, after a commit of revision %d", first, put)
	}
	want := []string{fmt.Sprintf("a=2 made in %d, b=1 made in %d", made, made)}
	step := func(guards []coord.Guard, format string, values map[string]string, ops ...coord.Op) coord.Revision {
		rev := env.commit(a, guards, ops...)
		v.awaitAll(values)
		want = append(want, fmt.Sprintf(format, rev))
		return rev
	}
	step(nil, fmt.Sprintf("changes at %%d: a=3 made in %d", made), map[string]string{"a": "3", "b": "1"},
		env.put("a", "3"))
	c := step(nil, "changes at %[1]d: c=1 made in %[1]d", map[string]string{"a": "3", "b": "1", "c": "1"},
		env.putOwned("c", "1"))
	step(nil, fmt.Sprintf("changes at %%[1]d: a deleted, b=2 made in %d, d=1 made in %%[1]d", made),
		map[string]string{"b": "2", "c": "1", "d": "1"}, env.put("b", "2"), env.del("a"), env.put("d", "1"))
	step([]coord.Guard{env.guard("c", c)}, fmt.Sprintf("changes at %%d: c=2 made in %d", c),
		map[string]string{"b": "2", "c": "2", "d": "1"}, env.put("c", "2"), env.del("none"))
	step(nil, "changes at %[1]d: a=4 made in %[1]d", map[string]string{"a": "4", "b": "2", "c": "2", "d": "1"},
		env.put("a", "4"))
	got := v.batchStrings()
	want[0] = fmt.Sprintf("all at %d: %s", v.batches[0].Revision, want[0])
	if !slices.Equal(want, got) {
		env.Errorf("the watch delivered\n%q, want\n%q", got, want)
	}
}

// watchPrefix checks that a watch delivers exactly the keys that begin with its prefix.
func watchPrefix(env *testEnv) {
	s := env.open()
	keys := []string{"", "a", "a/", "a/b", "a/\xff", "a0", "ab", "b", "\xff"}
	prefixes := map[string][]string{
		"": keys, "a": {"a", "a/", "a/b", "a/\xff", "a0", "ab"}, "a/": {"a/", "a/b", "a/\xff"},
		"ab": {"ab"}, "abc": {}, "\xff": {"\xff"},
	}
	early, late := make(map[string]*watchRecorder), make(map[string]*watchRecorder)
	for prefix := range prefixes {
		early[prefix] = env.watch(s, prefix)
		early[prefix].awaitAll(map[string]string{})
	}
	var puts, dels []coord.Op
	for i, key := range keys {
		puts, dels = append(puts, env.put(key, "all")), append(dels, env.del(key))
		env.commit(s, nil, env.put(key, strconv.Itoa(i)))
	}
	env.commit(s, nil, puts...)
	check := func(views map[string]*watchRecorder, value string) {
		for prefix, inside := range prefixes {
			want := make(map[string]string)
			for _, key := range inside {
				if value != "" {
					want[key] = value
				}
			}
			views[prefix].awaitAll(want) // watchRecorder checks that each key has the prefix
		}
	}
	check(early, "all")
	for prefix := range prefixes {
		late[prefix] = env.watch(s, prefix)
	}
	check(late, "all")
	env.commit(s, nil, dels...)
	check(early, "")
	check(late, "")
	if n := late["abc"].count(); n != 1 {
		env.Errorf("a prefix without keys got batches: %q", late["abc"].batchStrings())
	}
	// The empty prefix matches all keys, also those of other cases.
	own := env.commit(s, nil, env.put("k", "v"))
	ctx, cancel := env.bounded()
	defer cancel()
	found := false
	err := s.Watch(ctx, "", func(b coord.Batch) error {
		for _, e := range b.Events {
			found = found || e.Key == env.prefix+"k" && e.Create == own
		}
		return errStop
	})
	if !errors.Is(err, errStop) || !found {
		env.Errorf("a watch of all keys sees ours: %t, and returned %v", found, err)
	}
}

// watchWhole commits three keys together and checks that no watch sees them differ.
func watchWhole(env *testEnv) {
	a, b := env.open(), env.open()
	env.commit(a, nil, env.put("1", "0"), env.put("2", "0"), env.put("3", "0"))
	same := func(got map[string]string) error {
		if got["1"] != got["2"] || got["1"] != got["3"] {
			return fmt.Errorf("a commit is split: %v", got)
		}
		return nil
	}
	views := []*watchRecorder{env.watchWith(a, "", same), env.watchWith(b, "", same)}
	const n = 150
	for i := range n {
		value := strconv.Itoa(i)
		env.commit(a, nil, env.put("3", value), env.put("1", value), env.put("2", value))
		if i%3 == 0 {
			env.commit(b, nil, env.del("2"), env.del("3"), env.del("1"))
		}
		if i%50 == 0 {
			views = append(views, env.watchWith(b, "", same))
		}
	}
	env.commit(b, nil, env.put("1", "end"), env.put("2", "end"), env.put("3", "end"))
	for _, v := range views {
		v.awaitAll(map[string]string{"1": "end", "2": "end", "3": "end"})
	}
}

// watchOrder checks that a watch delivers a writer's values in commit order and none twice.
func watchOrder(env *testEnv) {
	a, b := env.open(), env.open()
	last := -1
	v := env.watchWith(b, "", func(got map[string]string) error {
		if got["k"] == "" {
			return nil
		}
		i, err := strconv.Atoi(got["k"])
		if err != nil || i <= last {
			return fmt.Errorf("value %q after %d", got["k"], last)
		}
		last = i
		return nil
	})
	const n = 200
	for i := range n {
		env.commit(a, nil, env.put("k", strconv.Itoa(i)))
	}
	v.awaitAll(map[string]string{"k": strconv.Itoa(n - 1)})
}

// watchSlow blocks a watch while much changes. Nobody must wait for it, and it must miss nothing.
func watchSlow(env *testEnv) {
	a, b := env.open(), env.open()
	env.commit(a, nil, env.put("deleted", "v"), env.put("0", "old"))
	entered, release := make(chan struct{}), make(chan struct{})
	var once, opened sync.Once
	open := func() { opened.Do(func() { close(release) }) }
	defer open()
	v := env.watchWith(a, "", func(map[string]string) error {
		once.Do(func() { close(entered) })
		<-release
		return nil
	})
	<-entered
	want := map[string]string{"big": "v"}
	for i := range 300 {
		key, value := strconv.Itoa(i%100), strconv.Itoa(i)
		want[key] = value
		env.commit([]coord.Store{a, b}[i%2], nil, env.put(key, value), env.del("deleted"))
		env.commit(b, nil, env.put("passing", value))
		env.commit(a, nil, env.del("passing"))
	}
	env.commit(b, nil, env.put("big", "v"))
	env.holds(a, want) // another watch of the same store is not blocked
	open()
	v.awaitAll(want)
}

// watchEnds checks what ends a watch and what Watch then returns.
func watchEnds(env *testEnv) {
	s := env.open()
	handle := func(coord.Batch) error { return nil }

	ctx, cancel := context.WithCancelCause(env.Context())
	cause := errors.New("a cause of the test's own")
	seen := make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, env.prefix, func(coord.Batch) error {
			once.Do(func() { close(seen) })
			return nil
		})
	}()
	<-seen
	cancel(cause)
	select {
	case err := <-ended:
		if !errors.Is(err, cause) {
			env.Errorf("a watch whose context was canceled returned %v, want its cause", err)
		}
	case <-time.After(env.Timeout):
		env.Fatalf("a watch whose context was canceled does not return after %v", env.Timeout)
	}
	if err := s.Watch(ctx, env.prefix, handle); !errors.Is(err, cause) {
		env.Errorf("a watch whose context had ended returned %v, want its cause", err)
	}
	short, cancelShort := context.WithTimeout(env.Context(), 50*time.Millisecond)
	defer cancelShort()
	if err := s.Watch(short, env.prefix, handle); !errors.Is(err, context.DeadlineExceeded) {
		env.Errorf("a watch whose time was up returned %v, want %v", err, context.DeadlineExceeded)
	}

	// An error of handle for a later batch ends the watch, and handle is not called again.
	other, cancelOther := env.bounded()
	defer cancelOther()
	var calls atomic.Int32
	first := make(chan struct{})
	go func() {
		ended <- s.Watch(other, env.prefix, func(coord.Batch) error {
			if calls.Add(1) == 1 {
				close(first)
				return nil
			}
			return errStop
		})
	}()
	<-first
	env.commit(s, nil, env.put("k", "1"))
	if err := <-ended; !errors.Is(err, errStop) {
		env.Errorf("the watch returned %v, want the error of handle", err)
	}
	env.commit(s, nil, env.put("k", "2"))
	env.holds(s, map[string]string{"k": "2"})
	if n := calls.Load(); n != 2 {
		env.Errorf("handle was called %d times, want 2", n)
	}
	env.alive(s)
}

// watches checks that the watches of one store are independent.
func watches(env *testEnv) {
	a, b := env.open(), env.open()
	var views []*watchRecorder
	for range 8 {
		views = append(views, env.watch(a, ""), env.watch(a, "even/"), env.watch(b, "odd/"))
	}
	ctx, cancel := context.WithCancel(env.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Watch(ctx, env.prefix, func(coord.Batch) error { return nil }) }()
	all, even, odd := make(map[string]string), make(map[string]string), make(map[string]string)
	for i := range 60 {
		if i == 30 { // one of many ends
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				env.Errorf("a watch that was canceled: %v", err)
			}
		}
		key, part := fmt.Sprint("even/", i), even
		if i%2 == 1 {
			key, part = fmt.Sprint("odd/", i), odd
		}
		all[key], part[key] = "v", "v"
		env.commit(b, nil, env.put(key, "v"))
	}
	cancel()
	for i, v := range views {
		v.awaitAll([]map[string]string{all, even, odd}[i%3])
	}
}

// linearizable checks that every watch that begins after a commit has returned includes the commit in its first batch.
func linearizable(env *testEnv) {
	stores := []coord.Store{env.open(), env.open(), env.open()}
	want := make(map[string]string)
	for i := range 30 {
		key, value := fmt.Sprint("k", i%7), strconv.Itoa(i)
		want[key] = value
		gone := fmt.Sprint("k", (i+3)%7)
		delete(want, gone)
		rev := env.commit(stores[i%3], nil, env.put(key, value), env.del(gone))
		for j := range stores {
			b := env.first(stores[(i+1+j)%3], "")
			state := make(map[string]coord.Event)
			for _, e := range b.Events {
				state[e.Key] = e
			}
			if got := env.values(state); b.Revision < rev || !maps.Equal(want, got) {
				env.Fatalf("after the commit of revision %d a watch began with %v at %d, want %v", rev, got, b.Revision, want)
			}
		}
	}
}
