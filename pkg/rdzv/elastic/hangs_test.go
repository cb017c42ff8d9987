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
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// busyMember returns a member whose workers run in round 3 of epoch 2.
func busyMember() (*member, Fence) {
	fence := Fence{Epoch: 2, Round: 3}
	m := newMember(memberOptions{node: Node{Host: "a"}, job: defaultJob()}, 0)
	m.enter(0, Node{Host: "a"}, Offer{}, rdzv.Member{})
	m.handleAnswer(0, Answer{Kind: Run, Fence: fence, Place: &Place{Nodes: 2}})
	m.takeOrders()
	m.dirty = false
	return m, fence
}

// TestMemberFollowsHangOrders checks that each order is followed once, that the member reports what it has found, and
// that it fails the round only with a finding of its own.
func TestMemberFollowsHangOrders(t *testing.T) {
	m, fence := busyMember()
	order := func(fence Fence, o HangOrder) []order {
		m.handleAnswer(time.Second, Answer{Kind: Run, Fence: fence, Hang: &o})
		return m.takeOrders()
	}
	look := HangLook{fence, 1}
	if got := order(fence, HangOrder{Act: &look}); len(got) > 0 || m.state != busy {
		t.Fatalf("to act without a finding: orders %v, state %v", got, m.state)
	}
	if got := order(fence, HangOrder{Look: &look}); len(got) != 1 || *got[0].look != look {
		t.Fatalf("to look: %+v", got)
	}
	if got := order(fence, HangOrder{Look: &look}); len(got) > 0 {
		t.Fatalf("to look, again: %+v", got)
	}
	found := HangOrder{Found: &HangFound{Look: HangLook{fence, 2}, Summary: "rank 1"}}
	if got := order(fence, found); len(got) != 1 || got[0].hang.Summary != "rank 1" {
		t.Fatalf("told of a hang: %+v", got)
	}
	if got := order(fence, found); len(got) > 0 {
		t.Fatalf("told again: %+v", got)
	}
	m.recordFinding(HangFinding{Look: HangLook{fence, 9}})
	if m.report.Hang != nil {
		t.Error("the finding of another look is reported")
	}
	cause := rdzv.Failure{Failure: failure.Failure{Host: "b", Kind: failure.Hang}, Age: 40 * time.Second}
	m.recordQuiet(time.Second, &rdzv.Quiet{})
	m.recordQuiet(time.Second, nil)
	if got := m.takeOrders(); len(got) != 1 || !got[0].hangOver {
		t.Errorf("when a worker moves: %+v", got)
	}
	m.recordFinding(HangFinding{Look: look, Hang: true, Summary: "rank 1 hangs", Failure: &cause})
	if m.report.Hang == nil || !m.dirty {
		t.Fatal("the finding is not reported")
	}
	got := order(fence, HangOrder{Act: &look})
	if len(got) != 1 || got[0].stop == nil || got[0].stop.Why != "rank 1 hangs" || got[0].killIn >= 0 {
		t.Fatalf("to act: %+v", got)
	}
	if m.report.Phase != Failing || m.report.Failure != &cause {
		t.Errorf("report %+v", m.report)
	}
	m.enter(90*time.Second, Node{Host: "a"}, Offer{}, rdzv.Member{Failure: &rdzv.Failure{Failure: failure.Failure{Kind: failure.Crashed}}})
	if m.report.Failure != &cause || m.report.failedAt != -39*time.Second {
		t.Errorf("after the stop: failure %+v at %v", m.report.Failure, m.report.failedAt)
	}
	m.handleAnswer(91*time.Second, Answer{Kind: Run, Fence: Fence{2, 4}, Place: &Place{Nodes: 2}})
	if m.report.Failure != nil || m.report.Hang != nil || m.hang != nil {
		t.Errorf("in the next round: %+v", m.report)
	}
}

func TestMemberReportsQuiet(t *testing.T) {
	m, _ := busyMember()
	m.recordQuiet(time.Minute, nil)
	if m.dirty {
		t.Error("it reports that nothing has changed")
	}
	m.recordQuiet(time.Minute, &rdzv.Quiet{For: 20 * time.Second, Learned: true})
	if !m.dirty || m.report.quietSince != 40*time.Second {
		t.Errorf("report %+v", m.report)
	}
	m.dirty = false
	m.recordQuiet(61*time.Second, nil)
	if !m.dirty || m.report.Quiet != nil {
		t.Errorf("report %+v", m.report)
	}
	m.recordQuiet(61*time.Second, &rdzv.Quiet{})
	m.enter(90*time.Second, Node{Host: "a"}, Offer{}, rdzv.Member{})
	if m.report.Quiet != nil {
		t.Error("a node without workers is quiet")
	}
	m.recordQuiet(91*time.Second, &rdzv.Quiet{})
	if m.report.Quiet != nil {
		t.Error("a node without workers becomes quiet")
	}
}

// TestNewLeaderWithOrder checks that the first answer of a new leader counts as one even if it is an order.
func TestNewLeaderWithOrder(t *testing.T) {
	m, _ := busyMember()
	next := Fence{Epoch: 5, Round: 3}
	m.handleAnswer(time.Second, Answer{Kind: Run, Fence: next, Hang: &HangOrder{Look: &HangLook{next, 1}}})
	if m.fence != next || !m.dirty || len(m.takeOrders()) != 1 {
		t.Errorf("fence %v, dirty %v", m.fence, m.dirty)
	}
	m.handleAnswer(time.Second, Answer{Kind: Run, Fence: Fence{6, 4}}) // without a place: malformed
	if m.fence != next || m.state != busy {
		t.Errorf("fence %v, state %v", m.fence, m.state)
	}
}

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
