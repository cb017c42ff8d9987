package elastic

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A rerun may join while an agent of the finished run still hosts its store. The rerun starts no round there, does not
// keep the host from ending, and loses nothing when it ends. Then one of its own agents hosts.
func TestRerunOutlivesTheStore(t *testing.T) {
	j, port := job(2, 2), testenv.FreePort(t)
	launched := func(name, launch string) *Handler {
		h := newTestHandler(t, j, port, name)
		h.opts.Node.Launch.ID = launch
		return h
	}
	first := []*Handler{launched("node0", "first"), launched("node1", "first")}
	waits := []<-chan joined{enter(t, first[0], nil), enter(t, first[1], nil)}
	for _, w := range waits {
		if got := await(t, "first run", w); got.err != nil {
			t.Fatal(got.err)
		}
	}
	wantSuccess(t, first...)
	host, guest := first[0], first[1]
	if host.opts.Access.Front() == nil {
		host, guest = guest, host
	}
	if err := guest.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits = nil
	var second []*Handler
	waiting := make(chan bool, 2)
	for _, name := range []string{"node1", "node0"} {
		h := launched(name, "second")
		h.log = h.log.Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, line string) {
			if strings.Contains(line, "is about to end") {
				waiting <- true
			}
		}))
		waits, second = append(waits, enter(t, h, nil)), append(second, h)
		await(t, "the note that it waits", waiting)
	}
	late := await(t, "a late agent", enter(t, launched("node2", "first"), nil))
	if end, ok := errors.AsType[*rdzv.EndedError](late.err); !ok || end.Outcome.Ending != rdzv.EndSucceeded ||
		end.Late == nil {
		t.Errorf("a late agent: %v", late.err)
	}
	if err := host.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range waits {
		if got := await(t, "second run", w); got.err != nil || got.round.WorldSize != 2 {
			t.Errorf("second run: %+v, %v", got.round, got.err)
		}
	}
	for _, h := range second {
		if at := h.opts.Access.(*C10d).hosted(); at != nil && at.place.fresh.HasPredecessor {
			t.Error("the second run's store counts agents of its own run as agents of an earlier store")
		}
	}
}
