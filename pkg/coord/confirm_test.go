package coord

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// sharedKeeper is a SharedKeeper in memory. The test answers each confirmation.
type sharedKeeper struct {
	confirms chan chan error // each call of Confirm, with the channel for its answer

	mu      sync.Mutex
	buckets map[string]map[string][]byte
}

func newSharedKeeper() *sharedKeeper {
	return &sharedKeeper{confirms: make(chan chan error), buckets: map[string]map[string][]byte{}}
}

func (k *sharedKeeper) Write(edits []Edit) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range edits {
		if k.buckets[e.Bucket] == nil {
			k.buckets[e.Bucket] = map[string][]byte{}
		}
		if k.buckets[e.Bucket][e.Key] = e.Value; e.Value == nil {
			delete(k.buckets[e.Bucket], e.Key)
		}
	}
	return nil
}

func (k *sharedKeeper) All(bucket string) iter.Seq2[string, []byte] {
	return maps.All(k.buckets[bucket])
}

func (k *sharedKeeper) Confirm() error {
	answer := make(chan error)
	k.confirms <- answer
	return <-answer
}

func (k *sharedKeeper) Failure() string { return "it does not lead any more" }
func (k *sharedKeeper) Close() error    { return nil }

// answerAll confirms every request until stop is called.
func (k *sharedKeeper) answerAll() (stop func()) {
	stopping, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case answer := <-k.confirms:
				answer <- nil
			case <-stopping:
				return
			}
		}
	}()
	return func() { close(stopping); <-done }
}

// startShared serves a store with a sharedKeeper and returns a client with a session.
func startShared(t *testing.T) (*Server, *sharedKeeper, *Client) {
	t.Helper()
	s, k := NewServer(ServerOptions{}), newSharedKeeper()
	s.keepJournal(k)
	stop := k.answerAll()
	way := &pipeNetwork{server: s}
	c, err := Dial(t.Context(), DialOptions{Addr: "pipe", Conn: way.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop := k.answerAll()
		defer stop()
		if s.Err() != nil {
			c.lose(errClosed) // it would wait for the store's return
		}
		closeStore(t, c)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	stop()
	return s, k, c
}

// TestAnswersAreConfirmed checks that an answer waits for a confirmation that begins after its request has arrived.
func TestAnswersAreConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, c := startShared(t)
		local := openLocal(t, s)
		defer closeStore(t, local)
		var kept error
		answered := false
		go func() { kept, answered = c.KeepAlive(t.Context()), true }()
		early := <-k.confirms
		// The changes that a local watch delivers follow the same rule. It begins during the first confirmation.
		batches := watch(t, local, "")
		synctest.Wait()
		if answered {
			t.Error("a keep-alive was answered before a confirmation")
		}
		early <- nil
		late := <-k.confirms
		synctest.Wait()
		if !answered || kept != nil {
			t.Errorf("after the confirmation: answered %v with %v", answered, kept)
		}
		select {
		case b := <-batches:
			t.Errorf("a confirmation that had begun before was enough for %+v", b)
		default:
		}
		late <- nil
		<-batches
	})
}

// TestUnconfirmed checks that a store that cannot confirm answers nothing more and ends.
func TestUnconfirmed(t *testing.T) {
	s, k, c := startShared(t)
	kept := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { kept <- c.KeepAlive(ctx) }()
	next(t, k.confirms, "confirmation") <- errors.New("there is another leader")
	next(t, s.Ended(), "end of the store")
	cancel() // the client would wait for the store's return
	if err := next(t, kept, "end of the call"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the keep-alive ended with %v", err)
	}
	if want := "it does not lead any more: there is another leader"; s.Err() == nil ||
		s.Err().Error() != ErrUnavailable.Error()+": "+want {
		t.Errorf("the store ended with %v, want %s", s.Err(), want)
	}
}

// TestLoad checks that another core which loads a keeper's contents has the same state.
func TestLoad(t *testing.T) {
	_, k, c := startShared(t)
	stop := k.answerAll()
	put(t, c, Op{Key: "owned", Value: []byte("1"), Owned: true})
	put(t, c, Op{Key: "kept", Value: []byte("2"), TTL: 1 << 40})
	put(t, c, Op{Key: "gone"})
	put(t, c, Op{Key: "gone", Delete: true})
	stop()
	loaded := newCore()
	if err := loaded.load(k); err != nil {
		t.Fatal(err)
	}
	var got []Event
	for _, key := range []string{"kept", "owned", "gone"} {
		if e := loaded.entries[key]; e != nil {
			got = append(got, e.event())
		}
	}
	want := []Event{{Key: "kept", Value: []byte("2"), Create: 2}, {Key: "owned", Value: []byte("1"), Create: 1}}
	if diff := cmp.Diff(want, got); diff != "" || loaded.revision != 4 {
		t.Errorf("revision %d, want 4; keys (-want +got):\n%s", loaded.revision, diff)
	}
	if owner := loaded.entries["owned"].owner; owner == nil || owner.id != c.Session() || owner.ttl != c.TTL() {
		t.Errorf("the owner is %+v, want session %s", owner, c.Session())
	}
	if timer := loaded.entries["kept"].timer; timer == nil {
		t.Error("a key with a TTL has no timer")
	}
}
