package rounds

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// savingMember returns a member in a round, and an answer that orders it to save.
func savingMember(t *testing.T) (*Member, Answer) {
	t.Helper()
	job := jobWith(func(j *Job) { j.Rejoin, j.PreemptGrace = 40*time.Second, time.Minute })
	m := NewMember(MemberOptions{Node: Node{Host: "a"}, Job: job, TTL: 15 * time.Second}, 0)
	m.Enter(0, Node{Host: "a"}, Offer{}, rdzv.Member{})
	fence := Fence{Epoch: 1}
	m.HandleAnswer(0, Answer{Kind: Run, Fence: fence, Place: &Place{Nodes: 2}})
	m.TakeOrders()
	p := &rdzv.Preemption{By: "b", Grace: time.Minute}
	return m, Answer{Kind: Halt, Fence: fence, Note: "why", Preemption: p}
}

// stops takes the orders of m and returns those to stop.
func stops(m *Member) (stops []Order) {
	for _, o := range m.TakeOrders() {
		if o.Stop != nil {
			stops = append(stops, o)
		}
	}
	return stops
}

func TestMemberSaves(t *testing.T) {
	m, save := savingMember(t)
	m.HandleAnswer(time.Second, save)
	got := stops(m)
	if len(got) != 1 || got[0].Stop.Preemption != save.Preemption || got[0].KillIn != time.Minute+m.haltBound() {
		t.Fatalf("%+v", got)
	}
	if by := m.Deadline(); by.At > 15*time.Second {
		t.Errorf("the watchdog kills at %v: the store may be silent for the time of the grace", by.At)
	}
	if m.report.Preempt == nil || m.report.Preempt.By != "b" {
		t.Error("the leader of another store would not learn of it")
	}
	for at := 5 * time.Second; at <= 50*time.Second; at += 5 * time.Second {
		m.RecordProof(at, at)
	}
	save.Fence.Epoch++ // a new leader repeats the order
	m.HandleAnswer(51*time.Second, save)
	if again := stops(m); len(again) != 0 {
		t.Errorf("ordered again: %+v", again)
	}
}

// TestMemberSavesWhileItStops checks that an order to save leaves no more time than an earlier order to stop.
func TestMemberSavesWhileItStops(t *testing.T) {
	m, save := savingMember(t)
	m.HandleAnswer(time.Second, Answer{Kind: Halt, Fence: save.Fence, Note: "a worker has failed"})
	if first := stops(m); len(first) != 1 || first[0].KillIn != m.haltBound() {
		t.Fatalf("%+v", first)
	}
	m.RecordProof(5*time.Second, 5*time.Second)
	m.HandleAnswer(6*time.Second, save)
	got := stops(m)
	if len(got) != 1 || got[0].Stop.Preemption == nil || got[0].KillIn != m.haltBound()-5*time.Second {
		t.Errorf("%+v", got)
	}
}

// TestMemberSavesAfterItsOwnFailure checks a preemption that arrives before the Halt for a failure.
func TestMemberSavesAfterItsOwnFailure(t *testing.T) {
	m, save := savingMember(t)
	m.Fail(time.Second, rdzv.Failure{})
	m.HandleAnswer(2*time.Second, save)
	if got := stops(m); len(got) != 1 || got[0].Stop.Preemption == nil {
		t.Errorf("%+v", got)
	}
}

// TestMemberKeepsItsRequest checks that the first request of an agent stands and goes into its report.
func TestMemberKeepsItsRequest(t *testing.T) {
	m, _ := savingMember(t)
	m.dirty = false
	m.Preempt(time.Second, rdzv.Preemption{By: "first", Left: 20 * time.Second})
	m.Preempt(2*time.Second, rdzv.Preemption{By: "second"})
	if p := m.report.Preempt; !m.dirty || p == nil || p.By != "first" || m.report.preemptAt != time.Second {
		t.Errorf("%+v", m.report)
	}
}

// TestMemberForgetsAnotherRound checks that a report about a round that was over before the agent had learned of it
// holds nothing of the round before.
func TestMemberForgetsAnotherRound(t *testing.T) {
	t.Parallel()
	const s = time.Second
	m := NewMember(MemberOptions{Job: Job{JoinTimeout: time.Minute, Rejoin: 20 * s}, TTL: 12 * s}, 0)
	m.Enter(0, Node{}, Offer{}, rdzv.Member{})
	m.HandleAnswer(s, Answer{Fence: Fence{1, 0}, Kind: Run, Place: &Place{Nodes: 2}})
	m.Started(2 * s)
	m.Fail(6*s, rdzv.Failure{})
	self := rdzv.Member{Failure: &rdzv.Failure{}, Stop: true, ExcludeNode: true, Finished: true}
	enter := func(now time.Duration) Report {
		m.RecordSteps(&StepTimes{Marks: []StepTime{{Step: 7, At: 4 * s}}})
		m.Enter(now, Node{}, Offer{}, self)
		return m.report
	}
	r := enter(7 * s)
	if !r.Stop || !r.ExcludeNode || !r.Finished || r.Failure == nil || r.Steps.last() == nil || *r.Ran != 5*s ||
		*r.Started != s || r.Steps.Marks[0].At != 3*s {
		t.Errorf("after round 0: %+v", r)
	}
	m.HandleAnswer(8*s, Answer{Fence: Fence{1, 1}, Kind: Halt})
	r = enter(9 * s)
	if r.Fence.Round != 1 || r.Stop || r.ExcludeNode || r.Finished || r.Failure != nil || r.Steps != nil || *r.Ran != 0 ||
		r.Started != nil {
		t.Errorf("after round 1: %+v", r)
	}
}
