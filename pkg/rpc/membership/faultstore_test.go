package membership

import (
	"context"
	"fmt"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// hooked is a Store that passes each operation through around, which decides whether and when to carry it out.
type hooked struct {
	kvstore.Store
	around func(ctx context.Context, op, key string, carryOut func() error) error
}

func (s *hooked) Set(ctx context.Context, key string, value []byte) error {
	return s.around(ctx, "set", key, func() error { return s.Store.Set(ctx, key, value) })
}

func (s *hooked) Get(ctx context.Context, key string) (value []byte, err error) {
	err = s.around(ctx, "get", key, func() error { value, err = s.Store.Get(ctx, key); return err })
	return value, err
}

func (s *hooked) Add(ctx context.Context, key string, delta int64) (n int64, err error) {
	err = s.around(ctx, "add", key, func() error { n, err = s.Store.Add(ctx, key, delta); return err })
	return n, err
}

func (s *hooked) CompareSet(ctx context.Context, key string, expected, desired []byte) (got []byte, err error) {
	err = s.around(ctx, "compare", key, func() error {
		got, err = s.Store.CompareSet(ctx, key, expected, desired)
		return err
	})
	return got, err
}

func (s *hooked) Check(ctx context.Context, keys ...string) (there bool, err error) {
	err = s.around(ctx, "check", keys[0], func() error { there, err = s.Store.Check(ctx, keys...); return err })
	return there, err
}

func (s *hooked) Wait(ctx context.Context, keys ...string) error {
	return s.around(ctx, "wait", keys[0], func() error { return s.Store.Wait(ctx, keys...) })
}

func (s *hooked) Delete(ctx context.Context, key string) (there bool, err error) {
	err = s.around(ctx, "delete", key, func() error { there, err = s.Store.Delete(ctx, key); return err })
	return there, err
}

func (s *hooked) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = s.around(ctx, "multiget", keys[0], func() error { values, err = s.Store.MultiGet(ctx, keys...); return err })
	return values, err
}

// outcome is the result of one operation of a faultStore.
type outcome int

const (
	carriedOut outcome = iota
	failed             // fails and is not carried out
	unanswered         // is carried out, and then fails
	hung               // blocks until its context ends, or until set is called, and then it is carried out
	lost               // is carried out, and then blocks until its context ends
)

// faultStore is a store in which decide determines the outcome of each operation.
type faultStore struct {
	hooked

	mu     sync.Mutex
	count  int
	decide func(count int) outcome // count starts at 1; nil means no faults
	resume chan struct{}           // closed to end the blocking
}

func newFaultStore(inner kvstore.Store) *faultStore {
	s := &faultStore{resume: make(chan struct{})}
	s.hooked = hooked{Store: inner, around: s.run}
	return s
}

// set replaces decide, resets the count, and ends blocked operations.
func (s *faultStore) set(decide func(count int) outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.decide = 0, decide
	close(s.resume)
	s.resume = make(chan struct{})
}

// setAt gives the n-th operation from now on an outcome of its own.
func (s *faultStore) setAt(n int, how outcome) {
	s.set(func(count int) outcome {
		if count == n {
			return how
		}
		return carriedOut
	})
}

func (s *faultStore) operations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *faultStore) next() (outcome, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.decide == nil {
		return carriedOut, s.resume
	}
	return s.decide(s.count), s.resume
}

// run gives an operation its outcome.
func (s *faultStore) run(ctx context.Context, op, key string, carryOut func() error) error {
	for {
		result, resume := s.next()
		switch result {
		case carriedOut:
			return carryOut()
		case unanswered, lost:
			_ = carryOut()
		}
		if result == failed || result == unanswered {
			return fmt.Errorf("%s %s: %w", op, key, kvstore.ErrConnection)
		}
		if result == lost {
			resume = nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w: %w", op, key, kvstore.ErrTimeout, context.Cause(ctx))
		case <-resume:
		}
	}
}

// fault describes what happens to one operation of a member, and to all later ones.
type fault struct {
	at     int  // the number of the operation, from 0
	done   bool // the operation is carried out, and only its reply is lost
	blocks bool // the operation blocks until its context ends
	dies   bool // all later operations fail without effect, as if the process had died
}

func (f fault) String() string {
	return fmt.Sprintf("operation %d done=%v blocks=%v dies=%v", f.at, f.done, f.blocks, f.dies)
}

// faults returns every kind of fault at operation n.
func faults(n int) []fault {
	var all []fault
	for kind := range 8 {
		all = append(all, fault{at: n, done: kind&1 != 0, blocks: kind&2 != 0, dies: kind&4 != 0})
	}
	return all
}

// newFaulty returns a store with one fault.
func newFaulty(inner kvstore.Store, f fault) *faultStore {
	s := newFaultStore(inner)
	here := map[fault]outcome{
		{}: failed, {done: true}: unanswered, {blocks: true}: hung, {done: true, blocks: true}: lost,
	}
	s.set(func(count int) outcome {
		switch {
		case count == f.at+1:
			return here[fault{done: f.done, blocks: f.blocks}]
		case count > f.at+1 && f.dies:
			return failed
		}
		return carriedOut
	})
	return s
}
