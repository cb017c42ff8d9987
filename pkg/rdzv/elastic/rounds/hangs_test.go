package rounds

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// busyMember returns a member whose workers run in round 3 of epoch 2.
func busyMember() (*Member, Fence) {
	fence := Fence{Epoch: 2, Round: 3}
	m := NewMember(MemberOptions{Node: Node{Host: "a"}, Job: defaultJob()}, 0)
	m.Enter(0, Node{Host: "a"}, Offer{}, rdzv.Member{})
	m.HandleAnswer(0, Answer{Kind: Run, Fence: fence, Place: &Place{Nodes: 2}})
	m.TakeOrders()
	m.dirty = false
	return m, fence
}

// TestMemberFollowsHangOrders checks that each order is followed once, that the member reports what it has found, and
// that it fails the round only with a finding of its own.
func TestMemberFollowsHangOrders(t *testing.T) {
	m, fence := busyMember()
	order := func(fence Fence, o HangOrder) []Order {
		m.HandleAnswer(time.Second, Answer{Kind: Run, Fence: fence, Hang: &o})
		return m.TakeOrders()
	}
	look := HangLook{fence, 1}
	if got := order(fence, HangOrder{Act: &look}); len(got) > 0 || m.state != busy {
		t.Fatalf("to act without a finding: orders %v, state %v", got, m.state)
	}
	if got := order(fence, HangOrder{Look: &look}); len(got) != 1 || *got[0].Look != look {
		t.Fatalf("to look: %+v", got)
	}
	if got := order(fence, HangOrder{Look: &look}); len(got) > 0 {
		t.Fatalf("to look, again: %+v", got)
	}
	found := HangOrder{Found: &HangFound{Look: HangLook{fence, 2}, Summary: "rank 1"}}
	if got := order(fence, found); len(got) != 1 || got[0].Hang.Summary != "rank 1" {
		t.Fatalf("told of a hang: %+v", got)
	}
	if got := order(fence, found); len(got) > 0 {
		t.Fatalf("told again: %+v", got)
	}
	m.RecordFinding(HangFinding{Look: HangLook{fence, 9}})
	if m.report.Hang != nil {
		t.Error("the finding of another look is reported")
	}
	cause := rdzv.Failure{Failure: failure.Failure{Host: "b", Kind: failure.Hang}, Age: 40 * time.Second}
	m.RecordQuiet(time.Second, &rdzv.Quiet{})
	m.RecordQuiet(time.Second, nil)
	if got := m.TakeOrders(); len(got) != 1 || !got[0].HangOver {
		t.Errorf("when a worker moves: %+v", got)
	}
	m.RecordFinding(HangFinding{Look: look, Hang: true, Summary: "rank 1 hangs", Failure: &cause})
	if m.report.Hang == nil || !m.dirty {
		t.Fatal("the finding is not reported")
	}
	got := order(fence, HangOrder{Act: &look})
	if len(got) != 1 || got[0].Stop == nil || got[0].Stop.Why != "rank 1 hangs" || got[0].KillIn >= 0 {
		t.Fatalf("to act: %+v", got)
	}
	if m.report.Phase != Failing || m.report.Failure != &cause {
		t.Errorf("report %+v", m.report)
	}
	m.Enter(90*time.Second, Node{Host: "a"}, Offer{}, rdzv.Member{Failure: &rdzv.Failure{Failure: failure.Failure{Kind: failure.Crashed}}})
	if m.report.Failure != &cause || m.report.failedAt != -39*time.Second {
		t.Errorf("after the stop: failure %+v at %v", m.report.Failure, m.report.failedAt)
	}
	m.HandleAnswer(91*time.Second, Answer{Kind: Run, Fence: Fence{2, 4}, Place: &Place{Nodes: 2}})
	if m.report.Failure != nil || m.report.Hang != nil || m.hang != nil {
		t.Errorf("in the next round: %+v", m.report)
	}
}

func TestMemberReportsQuiet(t *testing.T) {
	m, _ := busyMember()
	m.RecordQuiet(time.Minute, nil)
	if m.dirty {
		t.Error("it reports that nothing has changed")
	}
	m.RecordQuiet(time.Minute, &rdzv.Quiet{For: 20 * time.Second, Learned: true})
	if !m.dirty || m.report.quietSince != 40*time.Second {
		t.Errorf("report %+v", m.report)
	}
	m.dirty = false
	m.RecordQuiet(61*time.Second, nil)
	if !m.dirty || m.report.Quiet != nil {
		t.Errorf("report %+v", m.report)
	}
	m.RecordQuiet(61*time.Second, &rdzv.Quiet{})
	m.Enter(90*time.Second, Node{Host: "a"}, Offer{}, rdzv.Member{})
	if m.report.Quiet != nil {
		t.Error("a node without workers is quiet")
	}
	m.RecordQuiet(91*time.Second, &rdzv.Quiet{})
	if m.report.Quiet != nil {
		t.Error("a node without workers becomes quiet")
	}
}

// TestNewLeaderWithOrder checks that the first answer of a new leader counts as one even if it is an order.
func TestNewLeaderWithOrder(t *testing.T) {
	m, _ := busyMember()
	next := Fence{Epoch: 5, Round: 3}
	m.HandleAnswer(time.Second, Answer{Kind: Run, Fence: next, Hang: &HangOrder{Look: &HangLook{next, 1}}})
	if m.fence != next || !m.dirty || len(m.TakeOrders()) != 1 {
		t.Errorf("fence %v, dirty %v", m.fence, m.dirty)
	}
	m.HandleAnswer(time.Second, Answer{Kind: Run, Fence: Fence{6, 4}}) // without a place: malformed
	if m.fence != next || m.state != busy {
		t.Errorf("fence %v, state %v", m.fence, m.state)
	}
}
