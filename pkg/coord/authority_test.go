package coord

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// ownKeys lets a session write KEY/SESSION and watch keys that begin with "k".
type ownKeys struct{}

func (ownKeys) MayCommit(c Claim, _ []Guard, ops []Op) error {
	for _, op := range ops {
		if !strings.HasSuffix(op.Key, "/"+string(c.Session)) {
			return fmt.Errorf("%w: key %q", ErrDenied, op.Key)
		}
	}
	return nil
}

func (ownKeys) MayWatch(_ Claim, prefix string) error {
	if strings.HasPrefix(prefix, "k") {
		return nil
	}
	return ErrDenied
}

// TestAuthorityIsAsked checks that the store asks before a client's commit and watch, and not for local sessions.
func TestAuthorityIsAsked(t *testing.T) {
	s, addr := startServer(t, ServerOptions{Authority: ownKeys{}})
	c := dial(t, DialOptions{Addr: addr, RunID: "r"})
	put(t, c, Op{Key: "k/" + string(c.Session()), Owned: true})
	if _, err := c.Commit(t.Context(), nil, []Op{{Key: "k/another"}}); !errors.Is(err, ErrDenied) {
		t.Errorf("%v, want %v", err, ErrDenied)
	}
	l := openLocal(t, s)
	put(t, l, Op{Key: "k/another"})
	nc, _ := dialRaw(t, addr)
	nc.Write(appendNumbered(nil, kindWatch, 1, ""))
	waitMalformed(t, s, 1, 1)
}

// TestSessionBelongsToRun checks that a token is worthless for another run or role.
func TestSessionBelongsToRun(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	c := dial(t, DialOptions{Addr: addr, RunID: "r"})
	for _, opts := range []DialOptions{
		{Addr: addr, RunID: "other"}, {Addr: addr, RunID: "r", Role: RoleCloser}, {Addr: addr},
	} {
		if _, err := (&attempt{opts: &opts, token: c.Token()}).open(t.Context()); !errors.Is(err, ErrSessionLost) {
			t.Errorf("resume as %+v: %v, want %v", opts, err, ErrSessionLost)
		}
		if err := EndSession(t.Context(), opts, c.Token()); err != nil || s.Sessions() != 1 {
			t.Errorf("end as %+v: %v, %d sessions left", opts, err, s.Sessions())
		}
	}
	if err := EndSession(t.Context(), DialOptions{Addr: addr, RunID: "r"}, c.Token()); err != nil || s.Sessions() != 0 {
		t.Errorf("%v, %d sessions left", err, s.Sessions())
	}
}

// TestRunIDs checks that a run id cannot reach into another run's keys.
func TestRunIDs(t *testing.T) {
	_, addr := startServer(t, ServerOptions{})
	for _, id := range []string{"job/state/job", "/", "a\x00b", strings.Repeat("x", maxRunID+1)} {
		for name, ask := range map[string]func(DialOptions) error{
			"dial":  func(o DialOptions) error { _, err := Dial(t.Context(), o); return err },
			"probe": func(o DialOptions) error { _, err := Probe(t.Context(), o); return err },
			"end":   func(o DialOptions) error { return EndSession(t.Context(), o, "id.token") },
		} {
			err := ask(DialOptions{Addr: addr, RunID: id})
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonRunID {
				t.Errorf("%s with run id %.20q: %v", name, id, err)
			}
		}
	}
}
