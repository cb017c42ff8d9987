package elastic

import (
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// savingMember returns a member in a round, and what orders it to save.
func savingMember(t *testing.T) (*member, Answer) {
	t.Helper()
	job := jobWith(func(j *Job) { j.Rejoin, j.PreemptGrace = 40*time.Second, time.Minute })
	m := newMember(memberOptions{node: Node{Host: "a"}, job: job, ttl: 15 * time.Second}, 0)
	m.enter(0, Node{Host: "a"}, Offer{}, rdzv.Member{})
	fence := Fence{Epoch: 1}
	m.handleAnswer(0, Answer{Kind: Run, Fence: fence, Place: &Place{Nodes: 2}})
	m.takeOrders()
	p := &rdzv.Preemption{By: "b", Grace: time.Minute}
	return m, Answer{Kind: Halt, Fence: fence, Note: "why", Preemption: p}
}

// stops returns the orders to stop that were given.
func stops(m *member) (stops []order) {
	for _, o := range m.takeOrders() {
		if o.stop != nil {
			stops = append(stops, o)
		}
	}
	return stops
}

func TestMemberSaves(t *testing.T) {
	m, save := savingMember(t)
	m.handleAnswer(time.Second, save)
	got := stops(m)
	if len(got) != 1 || got[0].stop.Preemption != save.Preemption || got[0].killIn != time.Minute+m.haltBound() {
		t.Fatalf("%+v", got)
	}
	if by := m.deadline(); by.at > 15*time.Second {
		t.Errorf("the watchdog kills at %v: the store may be silent for the time of the grace", by.at)
	}
	if m.report.Preempt == nil || m.report.Preempt.By != "b" {
		t.Error("the leader of another store would not learn of it")
	}
	for at := 5 * time.Second; at <= 50*time.Second; at += 5 * time.Second {
		m.recordProof(at, at)
	}
	save.Fence.Epoch++ // a new leader repeats the order
	m.handleAnswer(51*time.Second, save)
	if again := stops(m); len(again) != 0 {
		t.Errorf("ordered again: %+v", again)
	}
}

// TestMemberSavesWhileItStops checks that an order to save leaves no more time than an earlier order to stop.
func TestMemberSavesWhileItStops(t *testing.T) {
	m, save := savingMember(t)
	m.handleAnswer(time.Second, Answer{Kind: Halt, Fence: save.Fence, Note: "a worker has failed"})
	if first := stops(m); len(first) != 1 || first[0].killIn != m.haltBound() {
		t.Fatalf("%+v", first)
	}
	m.recordProof(5*time.Second, 5*time.Second)
	m.handleAnswer(6*time.Second, save)
	got := stops(m)
	if len(got) != 1 || got[0].stop.Preemption == nil || got[0].killIn != m.haltBound()-5*time.Second {
		t.Errorf("%+v", got)
	}
}

// TestMemberSavesAfterItsOwnFailure checks a preemption that arrives before the Halt for a failure.
func TestMemberSavesAfterItsOwnFailure(t *testing.T) {
	m, save := savingMember(t)
	m.fail(time.Second, rdzv.Failure{})
	m.handleAnswer(2*time.Second, save)
	if got := stops(m); len(got) != 1 || got[0].stop.Preemption == nil {
		t.Errorf("%+v", got)
	}
}

// TestMemberKeepsItsRequest checks that the first request of a node stands, and goes into each report.
func TestMemberKeepsItsRequest(t *testing.T) {
	m, _ := savingMember(t)
	m.dirty = false
	m.preempt(time.Second, rdzv.Preemption{By: "first", Left: 20 * time.Second})
	m.preempt(2*time.Second, rdzv.Preemption{By: "second"})
	if p := m.report.Preempt; !m.dirty || p == nil || p.By != "first" || m.report.preemptAt != time.Second {
		t.Errorf("%+v", m.report)
	}
}

// What is known of a round says nothing of a later one that the node could not enter, because it was over before the
// node had learned of it.
func TestMemberForgetsAnotherRound(t *testing.T) {
	t.Parallel()
	const s = time.Second
	m := newMember(memberOptions{job: Job{JoinTimeout: time.Minute, Rejoin: 20 * s}, ttl: 12 * s}, 0)
	m.enter(0, Node{}, Offer{}, rdzv.Member{})
	m.handleAnswer(s, Answer{Fence: Fence{1, 0}, Kind: Run, Place: &Place{Nodes: 2}})
	m.started(2 * s)
	m.fail(6*s, rdzv.Failure{})
	self := rdzv.Member{Failure: &rdzv.Failure{}, Stop: true, ExcludeNode: true, Finished: true}
	enter := func(now time.Duration) Report {
		m.recordSteps(&stepTimes{Marks: []stepTime{{Step: 7, At: 4 * s}}})
		m.enter(now, Node{}, Offer{}, self)
		return m.report
	}
	r := enter(7 * s)
	if !r.Stop || !r.ExcludeNode || !r.Finished || r.Failure == nil || r.Steps.last() == nil || *r.Ran != 5*s ||
		*r.Started != s || r.Steps.Marks[0].At != 3*s {
		t.Errorf("after round 0: %+v", r)
	}
	m.handleAnswer(8*s, Answer{Fence: Fence{1, 1}, Kind: Halt})
	r = enter(9 * s)
	if r.Fence.Round != 1 || r.Stop || r.ExcludeNode || r.Finished || r.Failure != nil || r.Steps != nil || *r.Ran != 0 ||
		r.Started != nil {
		t.Errorf("after round 1: %+v", r)
	}
}
