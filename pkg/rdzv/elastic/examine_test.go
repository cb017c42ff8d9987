package elastic

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

// TestCollectStacks checks that an agent that looks gets its own reply and those of the others, without theirs who do
// not reply, and leaves nothing in the store.
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
	var members []RecordMember
	for i, host := range []string{"node0", "node1", "node2"} {
		store, err := server.Local()
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{
			store: store, prefix: prefixOf("run"), timeout: time.Second, log: zerolog.Nop(), statusInterval: time.Second,
			status: func(context.Context) []byte { return nil },
			stacks: func(_ context.Context, r StacksRequest) []byte {
				if !r.Look {
					t.Error("the request is not to look")
				}
				<-time.After(time.Second)
				return []byte(host)
			},
		}
		drivers, members = append(drivers, d), append(members, RecordMember{ID: store.Session(), Host: host, Nproc: 1})
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
	add(roundKey(3), Record{Round: 3, Members: members})
	for _, m := range members {
		add(prefixAgent+string(m.ID), Report{Node: Node{Host: m.Host}})
	}
	if _, err := drivers[0].store.Commit(ctx, nil, ops); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var got []string
	for _, n := range drivers[1].collectStacks(ctx, lookOrder{HangLook{Fence{1, 3}, 1}, 3}) {
		got = append(got, string(n.Stacks))
	}
	want, took := []string{"node0", "node1", "node2"}, time.Second
	if !all {
		want[2], took = "", lookReplyTimeout
	}
	if diff := cmp.Diff(want, got); diff != "" || time.Since(began) != took {
		t.Errorf("after %v:\n%s", time.Since(began), diff)
	}
	synctest.Wait()
	for _, prefix := range []string{prefixWatcher, prefixStacks} {
		if left, err := listKeys(ctx, drivers[1].store, "run/"+prefix); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	if drivers[1].collectStacks(ctx, lookOrder{HangLook{Fence{1, 4}, 1}, 3}) != nil {
		t.Error("a look at another round finds something")
	}
}
