package coord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

const endReason = "all nodes have left"

// wantEnded checks that the store's end has ended a client's session, or that of a store in this process, with
// ErrUnavailable and this message.
func wantEnded(t *testing.T, s Store, message string) {
	t.Helper()
	next(t, s.Lost(), "loss of the session")
	if err := s.Err(); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrReplaced) ||
		err.Error() != ErrUnavailable.Error()+": "+message {
		t.Errorf("%T ended with %v, want %q", s, err, message)
	}
}

// TestEnd ends stores for good. Clients do not wait for the return of such a store, even if others could continue it.
func TestEnd(t *testing.T) {
	for name, shared := range map[string]bool{"in memory": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, k := NewServer(ServerOptions{}), newSharedKeeper()
				if shared {
					s.keepJournal(k)
				}
				defer k.answerAll()()
				way := &pipeNetwork{server: s}
				c, err := Dial(t.Context(), DialOptions{Addr: "pipe", Conn: way.dial})
				if err != nil {
					t.Fatal(err)
				}
				c.SetAddrs([]string{"pipe", "another:1"})
				local := openLocal(t, s)
				s.End(endReason)
				s.End("another reason")
				wantEnded(t, c, endReason)
				wantEnded(t, local, "it was closed")
				next(t, s.Ended(), "end of the store")
				if err := s.Err(); err != nil {
					t.Errorf("the store ended with %v", err)
				}
				here, there := net.Pipe()
				s.ServeConn(there)
				if _, err := here.Read(make([]byte, 1)); err == nil {
					t.Error("a store that has ended serves")
				}
				closeStore(t, c)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestEndUnconfirmed ends a store that can no longer confirm. Its clients learn of the end, and get no answer.
func TestEndUnconfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, c := startShared(t)
		kept := make(chan error, 1)
		go func() { kept <- c.KeepAlive(t.Context()) }()
		unconfirmed := <-k.confirms
		s.End(endReason)
		synctest.Wait()
		if c.Err() != nil {
			t.Errorf("the client was notified before the answers to its requests: %v", c.Err())
		}
		unconfirmed <- errors.New("there is another leader")
		wantEnded(t, c, endReason)
		if err := <-kept; !errors.Is(err, ErrUnavailable) {
			t.Errorf("the keep-alive ended with %v", err)
		}
	})
}

// TestEndAfterFailure checks that a store that has failed does not end for good: others may continue it.
func TestEndAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k, c := startShared(t)
		ctx, cancel := context.WithCancel(t.Context())
		kept := make(chan error, 1)
		go func() { kept <- c.KeepAlive(ctx) }()
		unconfirmed := <-k.confirms
		s.Fail(ErrServerClosed)
		s.End(endReason)
		unconfirmed <- errors.New("there is another leader")
		synctest.Wait()
		if err := c.Err(); err != nil {
			t.Errorf("the client has lost its session: %v", err)
		}
		if err := s.Err(); !errors.Is(err, ErrServerClosed) {
			t.Errorf("the store ended with %v", err)
		}
		cancel()
		if err := <-kept; !errors.Is(err, context.Canceled) {
			t.Errorf("the keep-alive ended with %v", err)
		}
	})
}

// brokenKeeper is a Keeper that fails.
type brokenKeeper struct{}

func (brokenKeeper) Write([]Edit) error { return errors.New("it is broken") }
func (brokenKeeper) Failure() string    { return "nobody keeps it" }
func (brokenKeeper) Close() error       { return nil }

// brokenSharedKeeper is a SharedKeeper that fails.
type brokenSharedKeeper struct{ brokenKeeper }

func (brokenSharedKeeper) Confirm() error { return errors.New("it is broken") }

// TestKeeperFailureLevel checks that the end of a store is an error in the log only if nobody else can continue it.
func TestKeeperFailureLevel(t *testing.T) {
	for name, tc := range map[string]struct {
		keeper Keeper
		level  zerolog.Level
	}{
		"alone":  {keeper: brokenKeeper{}, level: zerolog.ErrorLevel},
		"shared": {keeper: brokenSharedKeeper{}, level: zerolog.DebugLevel},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := NewServer(ServerOptions{Logger: zerolog.New(&log)})
				s.keepJournal(tc.keeper)
				local := openLocal(t, s)
				if _, err := local.Commit(t.Context(), nil, []Op{{Key: "k"}}); !errors.Is(err, ErrUnavailable) {
					t.Errorf("the commit ended with %v", err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				want := fmt.Sprintf("{%q:%q,%q:%q,%q:%q}\n", "level", tc.level, "error", "it is broken",
					"message", "the coordination store ends: nobody keeps it")
				if diff := cmp.Diff(want, log.String()); diff != "" {
					t.Errorf("the log (-want +got):\n%s", diff)
				}
			})
		})
	}
}
