package membership

import (
	"context"
	"fmt"
	"sync"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// hooked is a Store each of whose operations goes through around, which decides whether and when to carry it out.
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
	err = s.around(ctx, "compare", key, func() error { got, err = s.Store.CompareSet(ctx, key, expected, desired); return err })
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

// fate is what becomes of one operation of a faultStore.
type fate int

const (
	carriedOut fate = iota
	failed          // and was not carried out
	unanswered      // carried out, and then failed
	hung            // until its context ends, or the hanging, and then it is carried out
	lost            // carried out, and then hung until its context ends
)

// faultStore is a store whose operations go wrong as decide says.
type faultStore struct {
	hooked

	mu     sync.Mutex
	count  int
	decide func(count int) fate // count from 1; nil: all is well
	resume chan struct{}        // closed at the end of the hanging
}

func newFaultStore(inner kvstore.Store) *faultStore {
	s := &faultStore{resume: make(chan struct{})}
	s.hooked = hooked{Store: inner, around: s.meet}
	return s
}

// set makes decide say what becomes of the operations from now on, counted anew, and ends what hangs.
func (s *faultStore) set(decide func(count int) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.decide = 0, decide
	close(s.resume)
	s.resume = make(chan struct{})
}

func (s *faultStore) operations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *faultStore) next() (fate, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.decide == nil {
		return carriedOut, s.resume
	}
	return s.decide(s.count), s.resume
}

// meet lets an operation meet its fate.
func (s *faultStore) meet(ctx context.Context, op, key string, carryOut func() error) error {
	for {
		fate, resume := s.next()
		switch fate {
		case carriedOut:
			return carryOut()
		case unanswered, lost:
			_ = carryOut()
		}
		if fate == failed || fate == unanswered {
			return fmt.Errorf("%s %s: %w", op, key, kvstore.ErrConnection)
		}
		if fate == lost {
			resume = nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w: %w", op, key, kvstore.ErrTimeout, context.Cause(ctx))
		case <-resume:
		}
	}
}

// fault is what happens to one operation of a member, and to all that come after it.
type fault struct {
	at     int  // the operation, from 0
	done   bool // it is carried out, and only its answer is lost
	blocks bool // until its context ends
	dies   bool // all later ones fail, and have no effect, as if the process had ended
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
	here := map[fault]fate{{}: failed, {done: true}: unanswered, {blocks: true}: hung, {done: true, blocks: true}: lost}
	s.set(func(count int) fate {
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
