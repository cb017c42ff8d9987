package coordtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// watchRecorder records the batches of one watch. A batch that violates a rule ends the case.
type watchRecorder struct {
	env    *testEnv
	prefix string // of the watch, including the case's prefix
	busy   atomic.Bool

	mu      sync.Mutex
	news    chan struct{} // closed and replaced with each batch
	batches []coord.Batch
	state   map[string]coord.Event

	started chan struct{} // closed when the first batch has arrived
	done    chan struct{} // closed when Watch has returned
	err     error         // what Watch returned; set before done is closed
}

// watch starts a watch of the keys that begin with prefix and waits for its first batch. It ends with the case.
func (env *testEnv) watch(s coord.Store, prefix string) *watchRecorder {
	env.Helper()
	return env.watchWith(s, prefix, func(map[string]string) error { return nil })
}

// watchWith is like watch, with a rule that must hold after each batch.
func (env *testEnv) watchWith(s coord.Store, prefix string, rule func(map[string]string) error) *watchRecorder {
	env.Helper()
	v := &watchRecorder{
		env: env, prefix: env.prefix + prefix,
		news: make(chan struct{}), state: make(map[string]coord.Event),
		started: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(env.Context())
	go func() {
		defer close(v.done)
		v.err = s.Watch(ctx, v.prefix, func(b coord.Batch) error { return v.handle(b, rule) })
	}()
	env.Cleanup(func() {
		cancel()
		select {
		case <-v.done:
		case <-time.After(env.Timeout):
			env.Errorf("Watch does not return %v after its context ended", env.Timeout)
			return
		}
		if broken := new(ruleError); errors.As(v.err, &broken) {
			env.Error(v.err)
		}
	})
	select { // so that all later commits are changes
	case <-v.started:
	case <-v.done:
	case <-time.After(env.Timeout):
		env.Fatalf("Watch delivers nothing for %v", env.Timeout)
	}
	return v
}

// ruleError says which rule a batch violates.
type ruleError struct{ text string }

func (e *ruleError) Error() string { return e.text }

func (v *watchRecorder) handle(b coord.Batch, rule func(map[string]string) error) error {
	if !v.busy.CompareAndSwap(false, true) {
		return &ruleError{"handle was called while it ran"}
	}
	defer v.busy.Store(false)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.check(b); err != nil {
		return &ruleError{fmt.Sprintf("batch %d, %s: %v", len(v.batches)+1, v.env.batchString(b), err)}
	}
	if len(v.batches) == 0 {
		close(v.started)
	}
	if b.Resync {
		clear(v.state)
	}
	for _, e := range b.Events {
		if e.Deleted {
			delete(v.state, e.Key)
		} else {
			v.state[e.Key] = e
		}
	}
	v.batches = append(v.batches, b)
	close(v.news)
	v.news = make(chan struct{})
	if err := rule(v.env.values(v.state)); err != nil {
		return &ruleError{fmt.Sprintf("after batch %d, %s: %v", len(v.batches), v.env.batchString(b), err)}
	}
	return nil
}

// check checks a batch against the earlier ones.
func (v *watchRecorder) check(b coord.Batch) error {
	var before coord.Revision
	if len(v.batches) == 0 {
		if !b.Resync {
			return errors.New("the first is no Resync")
		}
	} else {
		before = v.batches[len(v.batches)-1].Revision
	}
	if b.Revision < before || !b.Resync && b.Revision == before {
		return fmt.Errorf("its revision does not follow %d", before)
	}
	if !b.Resync && len(b.Events) == 0 {
		return errors.New("it has no events")
	}
	seen := make(map[string]bool)
	for _, e := range b.Events {
		known, have := v.state[e.Key]
		switch {
		case !strings.HasPrefix(e.Key, v.prefix):
			return fmt.Errorf("key %q does not begin with %q", e.Key, v.prefix)
		case b.Resync && (e.Deleted || seen[e.Key]):
			return fmt.Errorf("key %q of a Resync is deleted, or there twice", e.Key)
		case e.Deleted && e.Value != nil:
			return fmt.Errorf("deleted key %q has a value", e.Key)
		case e.Deleted:
		case e.Create <= 0 || e.Create > b.Revision:
			return fmt.Errorf("key %q has create-revision %d", e.Key, e.Create)
		case have && e.Create < known.Create:
			return fmt.Errorf("the create-revision of %q falls from %d to %d", e.Key, known.Create, e.Create)
		case !have && !b.Resync && !seen[e.Key] && e.Create <= before:
			return fmt.Errorf("key %q was made in revision %d and not delivered then", e.Key, e.Create)
		}
		seen[e.Key] = true
	}
	return nil
}

// await waits until the recorded values satisfy right.
func (v *watchRecorder) await(what string, right func(map[string]string) bool) {
	v.env.Helper()
	timeout := time.NewTimer(v.env.Timeout)
	defer timeout.Stop()
	for {
		v.mu.Lock()
		values, n, news := v.env.values(v.state), len(v.batches), v.news
		v.mu.Unlock()
		if n > 0 && right(values) {
			return
		}
		select {
		case <-news:
		case <-v.done:
			v.env.Fatalf("the watch ended before %s: %v", what, v.err)
		case <-timeout.C:
			v.env.Fatalf("no %s after %v; seen in %d batches: %v", what, v.env.Timeout, n, values)
		}
	}
}

// awaitAll waits until the recorded values are exactly want.
func (v *watchRecorder) awaitAll(want map[string]string) {
	v.env.Helper()
	v.await(fmt.Sprint(want), func(got map[string]string) bool { return maps.Equal(want, got) })
}

// ended waits until Watch has returned and returns its error.
func (v *watchRecorder) ended() error {
	v.env.Helper()
	select {
	case <-v.done:
		return v.err
	case <-time.After(v.env.Timeout):
		v.env.Fatalf("Watch does not return after %v", v.env.Timeout)
		return nil
	}
}

// batchStrings returns the batches so far as text.
func (v *watchRecorder) batchStrings() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var text []string
	for _, b := range v.batches {
		text = append(text, v.env.batchString(b))
	}
	return text
}

// count returns the number of batches so far.
func (v *watchRecorder) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.batches)
}

var errStop = errors.New("seen enough")

// first returns the first batch of a new watch.
func (env *testEnv) first(s coord.Store, prefix string) coord.Batch {
	env.Helper()
	ctx, cancel := env.bounded()
	defer cancel()
	var first coord.Batch
	err := s.Watch(ctx, env.prefix+prefix, func(b coord.Batch) error {
		first = b
		return errStop
	})
	if !errors.Is(err, errStop) {
		env.Fatalf("Watch returned %v before it called handle", err)
	}
	return first
}

// list returns the values of all keys of the case, read by a new watch.
func (env *testEnv) list(s coord.Store) map[string]string {
	env.Helper()
	state := make(map[string]coord.Event)
	for _, e := range env.first(s, "").Events {
		state[e.Key] = e
	}
	return env.values(state)
}

// holds checks that the store has exactly these keys and values.
func (env *testEnv) holds(s coord.Store, want map[string]string) {
	env.Helper()
	if got := env.list(s); !maps.Equal(want, got) {
		env.Fatalf("the store holds %v, want %v", got, want)
	}
}

// values reduces a state to keys and values.
func (env *testEnv) values(state map[string]coord.Event) map[string]string {
	values := make(map[string]string, len(state))
	for key, e := range state {
		values[strings.TrimPrefix(key, env.prefix)] = string(e.Value)
	}
	return values
}

// batchString formats a batch as one line, with its events sorted by key.
func (env *testEnv) batchString(b coord.Batch) string {
	var events []string
	for _, e := range b.Events {
		key := strings.TrimPrefix(e.Key, env.prefix)
		if e.Deleted {
			events = append(events, key+" deleted")
		} else {
			events = append(events, fmt.Sprintf("%s=%.20s made in %d", key, e.Value, e.Create))
		}
	}
	slices.Sort(events)
	kind := "changes"
	if b.Resync {
		kind = "all"
	}
	return fmt.Sprintf("%s at %d: %s", kind, b.Revision, strings.Join(events, ", "))
}
