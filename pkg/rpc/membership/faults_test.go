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

func (s *hooked) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = s.around(ctx, "multiget", keys[0], func() error { values, err = s.Store.MultiGet(ctx, keys...); return err })
	return values, err
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

// faulty is a Store with one fault. struck tells whether it has come to that.
type faulty struct {
	hooked
	mu     sync.Mutex
	n      int
	struck bool
}

func newFaulty(store kvstore.Store, f fault) *faulty {
	s := &faulty{}
	s.hooked = hooked{Store: store, around: func(ctx context.Context, op, key string, carryOut func() error) error {
		s.mu.Lock()
		strikes, dead := s.n == f.at, s.struck && f.dies
		s.n++
		s.struck = s.struck || strikes
		s.mu.Unlock()
		switch {
		case dead:
			return fmt.Errorf("%s %s: %w", op, key, kvstore.ErrConnection)
		case !strikes:
			return carryOut()
		}
		if f.done {
			_ = carryOut()
		}
		if f.blocks {
			<-ctx.Done()
			return fmt.Errorf("%s %s: %w: %w", op, key, kvstore.ErrTimeout, context.Cause(ctx))
		}
		return fmt.Errorf("%s %s: %w", op, key, kvstore.ErrConnection)
	}}
	return s
}
