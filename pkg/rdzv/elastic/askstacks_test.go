package elastic

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// askHarness is a round of agents on one store. Each serves AskStacks and replies to others; the last one is silent.
type askHarness struct {
	t      *testing.T
	server *coord.Server
	stores []coord.Store
	asks   []*Handler
	reads  int // of the first agent
}

func newAskHarness(t *testing.T, agents int) *askHarness {
	t.Helper()
	b := &askHarness{t: t, server: coord.NewServer(coord.ServerOptions{})}
	t.Cleanup(func() { _ = b.server.Close() })
	record := rounds.Record{Round: 4}
	for i := range agents {
		store := localStore(t, b.server)
		h := &Handler{
			stackRequests: make(chan func(context.Context, *driver)), driveDone: make(chan struct{}),
		}
		d := &driver{
			store: store, prefix: rounds.PrefixOf("run"), timeout: time.Second, log: zerolog.Nop(), statusInterval: time.Second,
			status:        func(context.Context) []byte { return nil },
			stackRequests: h.stackRequests,
			stacks: func(context.Context, rounds.StacksRequest) []byte {
				if i == 0 {
					b.reads++
				}
				return []byte{'0' + byte(i)}
			},
		}
		go func() { _ = d.serveStackRequests(t.Context()) }()
		if i < agents-1 {
			go func() { _ = d.publishStatus(t.Context()) }()
		}
		b.stores, b.asks = append(b.stores, store), append(b.asks, h)
		record.Members = append(record.Members, rounds.RecordMember{ID: store.Session(), Nproc: 1})
		b.put(rounds.PrefixAgent+string(store.Session()), rounds.Report{}, true, store)
	}
	b.put(rounds.RoundKey(4), record, false, b.stores[0])
	return b
}

func (b *askHarness) put(key string, value any, owned bool, by coord.Store) {
	b.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := by.Commit(b.t.Context(), nil, []coord.Op{{Key: "run/" + key, Value: data, Owned: owned}}); err != nil {
		b.t.Fatal(err)
	}
}

// succeeded records which ranks have succeeded.
func (b *askHarness) succeeded(session coord.SessionID, bits byte) {
	b.t.Helper()
	b.put(rounds.SuccessKey(4, 0), rounds.Successes{Round: 4, Session: session, Bits: []byte{bits}}, false, b.stores[0])
}

// ask calls AskStacks for a rank and returns what the agents have replied, "-" for a silent one, and how long it took.
func (b *askHarness) ask(rank int) (string, time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 4*time.Second)
	defer cancel()
	began := time.Now()
	s := b.asks[rank].AskStacks(ctx, 4, rank)
	took := time.Since(began)
	synctest.Wait()
	if left, err := listKeys(b.t.Context(), b.stores[0], "run/"+rounds.PrefixWatcher); err != nil || len(left) > 0 {
		b.t.Errorf("keys are left: %v, %v", left, err)
	}
	if s == nil {
		return "nobody", took
	}
	text := ""
	for _, a := range s.Agents {
		if a.Stacks == nil {
			text += "-"
		}
		text += string(a.Stacks)
	}
	return text, took
}

// TestAskStacks checks that an agent gets the replies of the others in its own session, each time it asks, and waits no
// longer than it wants for one that does not reply.
func TestAskStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAskHarness(t, 3)
		for n := 1; n <= 2; n++ {
			if got, took := b.ask(1); got != "01-" || took != 4*time.Second || b.reads != n {
				t.Errorf("call %d: %s after %v, the first agent has read %d times", n, got, took, b.reads)
			}
		}
		_ = b.stores[2].Close(t.Context()) // lost: it does not count
		if got, took := b.ask(1); got != "01-" || took != 0 {
			t.Errorf("without the silent one: %s after %v", got, took)
		}
		close(b.asks[1].driveDone)
		b.asks[1].stackRequests = nil
		if got, _ := b.ask(1); got != "nobody" {
			t.Errorf("without a session: %s", got)
		}
	})
}

// TestOneAsks checks that of the agents whose workers have finished the one with the lowest rank asks.
func TestOneAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAskHarness(t, 3)
		for _, step := range []struct {
			name    string
			session coord.SessionID
			bits    byte
			rank    int
			asks    bool
		}{
			{"no other has finished", b.stores[0].Session(), 0b010, 1, true},
			{"a higher rank has", b.stores[0].Session(), 0b110, 1, true},
			{"a lower rank has", b.stores[0].Session(), 0b011, 1, false},
			{"it is that rank", b.stores[0].Session(), 0b011, 0, true},
			{"a lower rank of another run has", "other", 0b011, 1, true},
		} {
			b.succeeded(step.session, step.bits)
			if got, _ := b.ask(step.rank); (got != "nobody") != step.asks {
				t.Errorf("%s: rank %d has the replies %q", step.name, step.rank, got)
			}
		}
		b.succeeded(b.stores[0].Session(), 0b011)
		if _, err := b.stores[0].Commit(t.Context(), nil, []coord.Op{
			{Key: "run/" + rounds.PrefixAgent + string(b.stores[0].Session()), Delete: true},
		}); err != nil {
			t.Fatal(err)
		}
		if got, _ := b.ask(1); got == "nobody" {
			t.Error("nobody asks when the lower rank has left")
		}
	})
}
