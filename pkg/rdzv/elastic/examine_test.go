package elastic

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// TestCollectStacks checks that an agent that looks gets its own reply and those of the agents that reply, and leaves
// nothing in the store.
func TestCollectStacks(t *testing.T) {
	for name, all := range map[string]bool{"all reply": true, "one is silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCollectStacks(t, all) })
		})
	}
}

func testCollectStacks(t *testing.T, all bool) {
	t.Helper()
	server := coord.NewServer(coord.ServerOptions{})
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var drivers []*driver
	var members []rounds.RecordMember
	for i, host := range []string{"node0", "node1", "node2"} {
		store := localStore(t, server)
		d := &driver{
			store: store, prefix: rounds.PrefixOf("run"), timeout: time.Second, log: zerolog.Nop(), statusInterval: time.Second,
			status: func(context.Context) []byte { return nil },
			stacks: func(_ context.Context, r rounds.StacksRequest) []byte {
				if !r.Look {
					t.Error("the request is not to look")
				}
				<-time.After(time.Second)
				return []byte(host)
			},
		}
		drivers, members = append(drivers, d), append(members, rounds.RecordMember{ID: store.Session(), Host: host, Nproc: 1})
		if i < 2 || all {
			running.Go(func() { _ = d.publishStatus(ctx) })
		}
	}
	ops := []coord.Op{}
	add := func(key string, value any) {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, coord.Op{Key: "run/" + key, Value: data})
	}
	add(rounds.RoundKey(3), rounds.Record{Round: 3, Members: members})
	for _, m := range members {
		add(rounds.PrefixAgent+string(m.ID), rounds.Report{Node: rounds.Node{Host: m.Host}})
	}
	if _, err := drivers[0].store.Commit(ctx, nil, ops); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var got []string
	order := lookOrder{rounds.HangLook{Fence: rounds.Fence{Epoch: 1, Round: 3}, N: 1}, 3}
	for _, n := range drivers[1].collectStacks(ctx, order) {
		got = append(got, string(n.Stacks))
	}
	want, took := []string{"node0", "node1", "node2"}, time.Second
	if !all {
		want[2], took = "", rounds.LookReplyTimeout
	}
	if diff := cmp.Diff(want, got); diff != "" || time.Since(began) != took {
		t.Errorf("after %v:\n%s", time.Since(began), diff)
	}
	synctest.Wait()
	for _, prefix := range []string{rounds.PrefixWatcher, rounds.PrefixStacks} {
		if left, err := listKeys(ctx, drivers[1].store, "run/"+prefix); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	order.Round = 4
	if drivers[1].collectStacks(ctx, order) != nil {
		t.Error("a look at another round finds something")
	}
}
