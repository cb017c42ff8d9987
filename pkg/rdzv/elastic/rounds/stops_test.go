package rounds

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// TestSendStop checks that a Stop replaces one that was not received, and that it closes the round's over channel, so
// that no further worker is started before the agent receives the Stop.
func TestSendStop(t *testing.T) {
	b := NewStopMailbox()
	over := b.BeginRound()
	b.Send(rdzv.Stop{Round: NoRound})
	select {
	case <-over:
		t.Fatal("a Stop of no round ends the round")
	default:
	}
	for i := range 6 {
		b.Send(rdzv.Stop{Round: 3, KillBy: time.Unix(int64(100-i), 0)})
	}
	select {
	case <-over:
	default:
		t.Error("the round is not over")
	}
	if s := <-b.C; s.KillBy != time.Unix(95, 0) {
		t.Errorf("KillBy is %v", s.KillBy)
	}
	select {
	case s := <-b.C:
		t.Errorf("another Stop: %+v", s)
	default:
	}
}

// TestProbeAgent checks that an agent with workers is probed at intervals, and that an agent that does not receive a
// probe for the rejoin timeout is reported.
func TestProbeAgent(t *testing.T) {
	rejoin := 40 * time.Second
	b := NewStopMailbox()
	m := NewMember(MemberOptions{Job: Job{Rejoin: rejoin}}, 0)
	sec := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	if next := b.ProbeAgent(0, m, zerolog.Nop()); next.Set {
		t.Errorf("an agent without workers is probed at %v", next.At)
	}
	m.Enter(0, Node{}, Offer{}, rdzv.Member{})
	m.HandleAnswer(0, Answer{Kind: Run, Fence: Fence{Epoch: 1}, Place: &Place{Nodes: 2}})
	for _, step := range []struct {
		at       float64
		receive  bool // before that
		next     float64
		sent     bool
		reported bool
	}{
		{at: 0, next: 10},
		{at: 9, next: 10},
		{at: 10, next: 20, sent: true},
		{at: 20, receive: true, next: 30, sent: true},
		{at: 30, next: 40, sent: true},
		{at: 50, next: 60, sent: true},
		{at: 60, next: 70, sent: true, reported: true}, // sent at 20
		{at: 70, next: 80, sent: true, reported: true},
		{at: 80, receive: true, next: 90, sent: true},
	} {
		if step.receive {
			if s := <-b.C; s.Round != NoRound {
				t.Errorf("after %v s: %+v", step.at, s)
			}
		}
		next := b.ProbeAgent(sec(step.at), m, zerolog.Nop())
		sent, reported := len(b.C) == 1, m.report.Stuck
		if !next.Set || next.At != sec(step.next) || sent != step.sent || reported != step.reported {
			t.Errorf("after %v s: sent %v, reported %v, next at %v", step.at, sent, reported, next.At)
		}
	}
	m.nodes = 1
	if next := b.ProbeAgent(sec(90), m, zerolog.Nop()); next.Set {
		t.Error("an agent without peers is probed")
	}
}
