package elastic

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// The guard of an agent that alone keeps the store may hand over until the next agent is started at the endpoint. If
// the guard has begun to hand over, the next agent learns of it.
func TestHeirs(t *testing.T) {
	t.Parallel()
	start := func(a *C10d) *hostPlace {
		next := &hostPlace{log: zerolog.Nop()}
		next.createMarkers(a)
		return next
	}
	for _, tt := range []struct {
		name  string
		known []string
		does  func(t *testing.T, a *C10d, h *Heirs)
	}{
		{"nobody else", nil, func(t *testing.T, _ *C10d, h *Heirs) {
			t.Helper()
			if h != nil {
				t.Errorf("there are heirs: %+v", h)
			}
		}},
		{"the guard is first", []string{"127.0.0.1:1"}, func(t *testing.T, a *C10d, h *Heirs) {
			t.Helper()
			renamed := false
			for range 2 { // the second attempt finds it done
				if err := h.rename(&renamed); err != nil || !renamed {
					t.Fatal(renamed, err)
				}
			}
			if g := start(a).readEarlierGroup(a); g == nil || g.Addrs[0] != "127.0.0.1:1" {
				t.Errorf("the next agent knows of %+v", g)
			}
		}},
		{"the next agent is first", []string{"127.0.0.1:1"}, func(t *testing.T, a *C10d, h *Heirs) {
			t.Helper()
			if g := start(a).readEarlierGroup(a); g != nil {
				t.Errorf("the next agent knows of %+v", g)
			}
			if err := h.rename(new(bool)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the guard begins to hand over: %v", err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, m := newFounder(t, tt.name, tt.known)
			var h *Heirs
			testenv.Await(t, "the heirs", time.Minute, func() bool {
				m.setKnown(tt.known, 0) // again: see found
				m.update(func() { m.Status.Heirs = tt.known })
				h = a.Heirs()
				return (h != nil) == (tt.known != nil)
			})
			tt.does(t, a, h)
		})
	}
}

// An agent that was started while another one listened at its endpoint hosts the store when that one has gone, unless
// it has learned who keeps the store.
func TestEndpointIsFreeLater(t *testing.T) {
	t.Parallel()
	for _, knows := range []bool{false, true} {
		t.Run(fmt.Sprintf("knows others %v", knows), func(t *testing.T) {
			t.Parallel()
			former := newMemberAccess(t, testenv.FreePort(t))
			former.RunID += fmt.Sprint(knows)
			store := openTogether(t, former)
			next := newMemberAccess(t, former.Ports[0])
			next.RunID = former.RunID
			client := openTogether(t, next).(*coord.Client)
			if knows {
				next.storeMoved(client, rounds.StoreAddrs{Addrs: []string{client.Addr()}})
			}
			former.storeMember().removeGroupFile()
			if err := errors.Join(store.Close(t.Context()), former.Close(t.Context(), false)); err != nil {
				t.Fatal(err)
			}
			again, err := next.attempt(t.Context())
			if again != nil {
				_ = again.Close(t.Context())
			}
			if knows != (err != nil) {
				t.Errorf("another attempt: %v", err)
			}
		})
	}
}

// An agent that could not prepare a takeover names no heirs, to its guard or to others, and says so once.
func TestUnprepared(t *testing.T) {
	t.Parallel()
	known := []string{"127.0.0.1:1"}
	a := newMemberAccess(t, testenv.FreePort(t))
	var log strings.Builder
	a.Logger, a.MaxNodes = zerolog.New(&log).Level(zerolog.WarnLevel), 2 // only this goroutine logs warnings
	var full atomic.Bool
	a.Store = func([]byte) error {
		if full.Load() {
			return errors.New("no memory")
		}
		return nil
	}
	m := found(t, a, known)
	for i, fails := range []bool{false, true, true, false} {
		full.Store(fails)
		testenv.Await(t, fmt.Sprintf("store %d: it fails: %v", i, fails), time.Minute, func() bool {
			m.setKnown(known, 0) // again: see found
			m.update(func() { m.Status.Heirs = known })
			m.store([]byte("entries"))
			return len(m.addrs().Heirs) > 0 != fails && (a.Heirs() != nil) != fails
		})
	}
	m.setUnprepared(&m.noHeirsFile, errors.New("no space"))
	m.store([]byte("entries"))
	if len(m.addrs().Heirs) > 0 || a.Heirs() != nil {
		t.Error("there are heirs without a file")
	}
	if got := strings.Count(log.String(), "cannot take over"); got != 2 {
		t.Errorf("the log has %d lines, want one for each cause:\n%s", got, log.String())
	}
}

// A member takes over the group in which its agent has a session, and no other one.
func TestMayTakeOver(t *testing.T) {
	t.Parallel()
	a := newMemberAccess(t, testenv.FreePort(t))
	a.TTL = time.Minute
	openTogether(t, a)
	m := a.storeMember()
	instance := a.sessionIn()
	if !m.mayTakeOver(instance) || m.mayTakeOver("other") || instance == "" {
		t.Errorf("in group %q: may take over %v, another one %v", instance, m.mayTakeOver(instance), m.mayTakeOver("other"))
	}
	m.update(func() { m.TTL = 0 })
	if m.mayTakeOver(instance) {
		t.Error("a member whose agent was answered too long ago may take over")
	}
	m.update(func() { m.TTL, m.Closing = a.TTL, true })
	if m.mayTakeOver(instance) {
		t.Error("a member that ends may take over")
	}
}
