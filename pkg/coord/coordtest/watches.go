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

// watchTells waits for each batch before it commits the next change, so that all batches are known.
func watchBatches(l *testEnv) {
	a, b := l.open(), l.open()
	made := l.commit(a, nil, l.put("a", "1"), l.putOwned("b", "1"))
	put := l.commit(b, nil, l.put("a", "2"))
	v := l.watch(b, "")
	v.awaitAll(map[string]string{"a": "2", "b": "1"})
	first := l.first(a, "").Revision
	if first < put {
		l.Errorf("a watch begins at %d, after a commit of revision %d", first, put)
	}
	want := []string{fmt.Sprintf("a=2 made in %d, b=1 made in %d", made, made)}
	step := func(guards []coord.Guard, told string, values map[string]string, ops ...coord.Op) coord.Revision {
		rev := l.commit(a, guards, ops...)
		v.awaitAll(values)
		want = append(want, fmt.Sprintf(told, rev))
		return rev
	}
	step(nil, fmt.Sprintf("changes at %%d: a=3 made in %d", made), map[string]string{"a": "3", "b": "1"}, l.put("a", "3"))
	c := step(nil, "changes at %[1]d: c=1 made in %[1]d", map[string]string{"a": "3", "b": "1", "c": "1"}, l.putOwned("c", "1"))
	step(nil, fmt.Sprintf("changes at %%[1]d: a deleted, b=2 made in %d, d=1 made in %%[1]d", made),
		map[string]string{"b": "2", "c": "1", "d": "1"}, l.put("b", "2"), l.del("a"), l.put("d", "1"))
	step([]coord.Guard{l.guard("c", c)}, fmt.Sprintf("changes at %%d: c=2 made in %d", c),
		map[string]string{"b": "2", "c": "2", "d": "1"}, l.put("c", "2"), l.del("none"))
	step(nil, "changes at %[1]d: a=4 made in %[1]d", map[string]string{"a": "4", "b": "2", "c": "2", "d": "1"}, l.put("a", "4"))
	got := v.batchStrings()
	want[0] = fmt.Sprintf("all at %d: %s", v.batches[0].Revision, want[0])
	if !slices.Equal(want, got) {
		l.Errorf("the watch told\n%q, want\n%q", got, want)
	}
}

// watchPrefix sees the keys that begin with a prefix, and no others.
func watchPrefix(l *testEnv) {
	s := l.open()
	keys := []string{"", "a", "a/", "a/b", "a/\xff", "a0", "ab", "b", "\xff"}
	prefixes := map[string][]string{
		"": keys, "a": {"a", "a/", "a/b", "a/\xff", "a0", "ab"}, "a/": {"a/", "a/b", "a/\xff"}, "ab": {"ab"}, "abc": {}, "\xff": {"\xff"},
	}
	early, late := make(map[string]*watchRecorder), make(map[string]*watchRecorder)
	for prefix := range prefixes {
		early[prefix] = l.watch(s, prefix)
		early[prefix].awaitAll(map[string]string{})
	}
	var puts, dels []coord.Op
	for i, key := range keys {
		puts, dels = append(puts, l.put(key, "all")), append(dels, l.del(key))
		l.commit(s, nil, l.put(key, strconv.Itoa(i)))
	}
	l.commit(s, nil, puts...)
	check := func(views map[string]*watchRecorder, value string) {
		for prefix, inside := range prefixes {
			want := make(map[string]string)
			for _, key := range inside {
				if value != "" {
					want[key] = value
				}
			}
			views[prefix].awaitAll(want) // view checks that each key has the prefix
		}
	}
	check(early, "all")
	for prefix := range prefixes {
		late[prefix] = l.watch(s, prefix)
	}
	check(late, "all")
	l.commit(s, nil, dels...)
	check(early, "")
	check(late, "")
	if n := late["abc"].count(); n != 1 {
		l.Errorf("a prefix without keys was told of as %q", late["abc"].batchStrings())
	}
	// The empty prefix is that of all keys, others' too.
	own := l.commit(s, nil, l.put("k", "v"))
	ctx, cancel := l.bounded()
	defer cancel()
	found := false
	err := s.Watch(ctx, "", func(b coord.Batch) error {
		for _, e := range b.Events {
			found = found || e.Key == l.prefix+"k" && e.Create == own
		}
		return errStop
	})
	if !errors.Is(err, errStop) || !found {
		l.Errorf("a watch of all keys sees ours: %t, and returned %v", found, err)
	}
}

// watchWhole commits three keys together, and no watch ever sees them differ.
func watchWhole(l *testEnv) {
	a, b := l.open(), l.open()
	l.commit(a, nil, l.put("1", "0"), l.put("2", "0"), l.put("3", "0"))
	same := func(got map[string]string) error {
		if got["1"] != got["2"] || got["1"] != got["3"] {
			return fmt.Errorf("a commit is split: %v", got)
		}
		return nil
	}
	views := []*watchRecorder{l.watchWith(a, "", same), l.watchWith(b, "", same)}
	const n = 150
	for i := range n {
		value := strconv.Itoa(i)
		l.commit(a, nil, l.put("3", value), l.put("1", value), l.put("2", value))
		if i%3 == 0 {
			l.commit(b, nil, l.del("2"), l.del("3"), l.del("1"))
		}
		if i%50 == 0 {
			views = append(views, l.watchWith(b, "", same))
		}
	}
	l.commit(b, nil, l.put("1", "end"), l.put("2", "end"), l.put("3", "end"))
	for _, v := range views {
		v.awaitAll(map[string]string{"1": "end", "2": "end", "3": "end"})
	}
}

// watchOrder sees a writer's values in the order of its commits, and nothing twice.
func watchOrder(l *testEnv) {
	a, b := l.open(), l.open()
	last := -1
	v := l.watchWith(b, "", func(got map[string]string) error {
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
		l.commit(a, nil, l.put("k", strconv.Itoa(i)))
	}
	v.awaitAll(map[string]string{"k": strconv.Itoa(n - 1)})
}

// watchSlow holds a watch up while much changes: nobody waits for it, and it misses nothing.
func watchSlow(l *testEnv) {
	a, b := l.open(), l.open()
	l.commit(a, nil, l.put("deleted", "v"), l.put("0", "old"))
	entered, release := make(chan struct{}), make(chan struct{})
	var once, opened sync.Once
	open := func() { opened.Do(func() { close(release) }) }
	defer open()
	v := l.watchWith(a, "", func(map[string]string) error {
		once.Do(func() { close(entered) })
		<-release
		return nil
	})
	<-entered
	want := map[string]string{"big": "v"}
	for i := range 300 {
		key, value := strconv.Itoa(i%100), strconv.Itoa(i)
		want[key] = value
		l.commit([]coord.Store{a, b}[i%2], nil, l.put(key, value), l.del("deleted"))
		l.commit(b, nil, l.put("passing", value))
		l.commit(a, nil, l.del("passing"))
	}
	l.commit(b, nil, l.put("big", "v"))
	l.holds(a, want) // another watch of the same store is not held up
	open()
	v.awaitAll(want)
}

// watchEnds checks what ends a watch, and what it then returns.
func watchEnds(l *testEnv) {
	s := l.open()
	see := func(coord.Batch) error { return nil }

	ctx, cancel := context.WithCancelCause(l.Context())
	cause := errors.New("a cause of the test's own")
	seen := make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, l.prefix, func(coord.Batch) error {
			once.Do(func() { close(seen) })
			return nil
		})
	}()
	<-seen
	cancel(cause)
	select {
	case err := <-ended:
		if !errors.Is(err, cause) {
			l.Errorf("a watch whose context was cancelled returned %v, want its cause", err)
		}
	case <-time.After(l.Timeout):
		l.Fatalf("a watch whose context was cancelled does not return after %v", l.Timeout)
	}
	if err := s.Watch(ctx, l.prefix, see); !errors.Is(err, cause) {
		l.Errorf("a watch whose context had ended returned %v, want its cause", err)
	}
	short, cancelShort := context.WithTimeout(l.Context(), 50*time.Millisecond)
	defer cancelShort()
	if err := s.Watch(short, l.prefix, see); !errors.Is(err, context.DeadlineExceeded) {
		l.Errorf("a watch whose time was up returned %v, want %v", err, context.DeadlineExceeded)
	}

	// An error of see, of a later batch than the first, and no call after it.
	other, cancelOther := l.bounded()
	defer cancelOther()
	var calls atomic.Int32
	first := make(chan struct{})
	go func() {
		ended <- s.Watch(other, l.prefix, func(coord.Batch) error {
			if calls.Add(1) == 1 {
				close(first)
				return nil
			}
			return errStop
		})
	}()
	<-first
	l.commit(s, nil, l.put("k", "1"))
	if err := <-ended; !errors.Is(err, errStop) {
		l.Errorf("the watch returned %v, want the error of see", err)
	}
	l.commit(s, nil, l.put("k", "2"))
	l.holds(s, map[string]string{"k": "2"})
	if n := calls.Load(); n != 2 {
		l.Errorf("see was called %d times, want 2", n)
	}
	l.alive(s)
}

// watches of one store do not disturb each other.
func watches(l *testEnv) {
	a, b := l.open(), l.open()
	var views []*watchRecorder
	for range 8 {
		views = append(views, l.watch(a, ""), l.watch(a, "even/"), l.watch(b, "odd/"))
	}
	ctx, cancel := context.WithCancel(l.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Watch(ctx, l.prefix, func(coord.Batch) error { return nil }) }()
	all, even, odd := make(map[string]string), make(map[string]string), make(map[string]string)
	for i := range 60 {
		if i == 30 { // one of many ends
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				l.Errorf("a watch that was cancelled: %v", err)
			}
		}
		key, part := fmt.Sprint("even/", i), even
		if i%2 == 1 {
			key, part = fmt.Sprint("odd/", i), odd
		}
		all[key], part[key] = "v", "v"
		l.commit(b, nil, l.put(key, "v"))
	}
	cancel()
	for i, v := range views {
		v.awaitAll([]map[string]string{all, even, odd}[i%3])
	}
}

// linearizable: a commit that has returned is in the first batch of every watch that begins later, whoever's it is.
func linearizable(l *testEnv) {
	stores := []coord.Store{l.open(), l.open(), l.open()}
	want := make(map[string]string)
	for i := range 30 {
		key, value := fmt.Sprint("k", i%7), strconv.Itoa(i)
		want[key] = value
		gone := fmt.Sprint("k", (i+3)%7)
		delete(want, gone)
		rev := l.commit(stores[i%3], nil, l.put(key, value), l.del(gone))
		for j := range stores {
			b := l.first(stores[(i+1+j)%3], "")
			state := make(map[string]coord.Event)
			for _, e := range b.Events {
				state[e.Key] = e
			}
			if got := l.values(state); b.Revision < rev || !maps.Equal(want, got) {
				l.Fatalf("after the commit of revision %d a watch began with %v at %d, want %v", rev, got, b.Revision, want)
			}
		}
	}
}
