package elastic

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// TestStacksAreReadForWhoAsks checks that an agent reads its workers' stacks once for each observer that asks, deletes
// its reply when nobody waits for it, and does not publish its status meanwhile.
func TestStacksAreReadForWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coord.NewServer(coord.ServerOptions{})
		defer server.Close()
		reads := 0
		d := &driver{
			store: localStore(t, server), prefix: rounds.PrefixOf("run"), timeout: time.Second, log: zerolog.Nop(),
			statusInterval: time.Second,
			status: func(context.Context) []byte {
				t.Error("the status was asked for")
				return nil
			},
			stacks: func(_ context.Context, r rounds.StacksRequest) []byte {
				reads++
				return fmt.Appendf(nil, "%d, all threads: %v", reads, r.AllThreads)
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.publishStatus(ctx) }()
		report := coord.Op{Key: "run/agent/" + string(d.store.Session()), Value: []byte(`{}`), Owned: true}
		if _, err := d.store.Commit(ctx, nil, []coord.Op{report}); err != nil {
			t.Fatal(err)
		}
		// ask returns the agent's reply and a function that ends the observer.
		ask := func(allThreads bool) (reply string, leave func()) {
			store := localStore(t, server)
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = ObserveStacks(ctx, store, "run", allThreads, func(s Snapshot) error {
					if s.HasStacks() {
						reply = string(s.Agents[0].Stacks)
					}
					return nil
				})
			}()
			synctest.Wait()
			return reply, func() {
				cancel()
				<-done
				_ = store.Close(context.WithoutCancel(ctx))
				synctest.Wait()
			}
		}
		first, leaveFirst := ask(false)
		second, leaveSecond := ask(true)
		if first != "1, all threads: false" || second != "2, all threads: true" {
			t.Errorf("replies %q and %q", first, second)
		}
		leaveFirst()
		leaveSecond()
		if left, err := listKeys(ctx, d.store, "run/"+rounds.PrefixStacks); err != nil || len(left) > 0 {
			t.Errorf("when nobody asks: %v, %v", left, err)
		}
		third, leaveThird := ask(false)
		if third != "3, all threads: false" {
			t.Errorf("an observer that comes later has %q", third)
		}
		leaveThird()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
