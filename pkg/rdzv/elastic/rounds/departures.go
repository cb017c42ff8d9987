package rounds

import (
	"cmp"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A node whose workers have all exited with 0 waits at the exit barrier for the others. An agent that stops waiting
// asks to depart (Report.Departing). The leader grants a departure only while the round runs, and records it before it
// answers, so that a later leader knows it too. From then on the node's success stands: the round cannot be run again,
// because the node is gone. If a worker of another node fails, the job has failed. If another node is lost, the job
// ends with rdzv.EndNodeLost.

// DepartedMember is what the leader records of a member that has departed.
type DepartedMember struct {
	Round int  `json:"round"`
	Rank  int  `json:"rank"`
	Node  Node `json:"node"`
	// Ran is Report.Ran of the member.
	Ran *time.Duration `json:"ran,omitempty"`
}

// Key returns the key of the record.
func (d DepartedMember) Key() string { return fmt.Sprintf("%s%d/%d", PrefixDeparted, d.Round, d.Rank) }

// requestDeparture notes that a member asks to depart.
func (r *roundState) requestDeparture(rank int) {
	if m := &r.members[rank]; m.status == done && !m.departed {
		r.departing = append(r.departing, rank)
	}
}

// grantDepartures grants the departures of members that asked for one and still wait at the exit barrier.
func (l *Leader) grantDepartures() {
	r := &l.round
	ranks := r.departing
	r.departing = nil
	for _, rank := range ranks {
		m := &r.members[rank]
		if p := m.participant; m.status == done && !m.departed && p != nil && p.mismatch == "" {
			m.departed, r.departed = true, r.departed+1
			d := DepartedMember{Round: l.record.Round, Rank: rank, Node: p.report.Node, Ran: p.report.Ran}
			l.writes = append(l.writes, Write{Key: d.Key(), Value: d})
			l.answerDeparture(m)
		}
	}
}

// answerDeparture tells a member that its departure is recorded.
func (l *Leader) answerDeparture(m *roundMember) {
	note := "1 other node still runs"
	if n := len(l.round.members) - l.round.done; n != 1 {
		note = fmt.Sprintf("%d other nodes still run", n)
	}
	l.reply(m.participant, Answer{Kind: Depart, Note: note})
}

// takeOverDepartures marks the members of the recorded round that have departed.
func (l *Leader) takeOverDepartures(departed []DepartedMember) {
	for _, d := range departed {
		if l.outcome != nil || d.Round != l.record.Round || d.Rank >= len(l.round.members) {
			l.writes = append(l.writes, Write{Key: d.Key()})
			continue
		}
		m := &l.round.members[d.Rank]
		m.departed, m.node = true, &d.Node
		m.end = &Report{Fence: Fence{Round: d.Round}, Phase: Done, Ran: d.Ran}
		l.round.departed++
		l.round.setStatus(m, done)
	}
}

// forgetDepartures deletes the records of departures.
func (l *Leader) forgetDepartures() {
	for rank, m := range l.round.members {
		if m.departed {
			l.writes = append(l.writes, Write{Key: DepartedMember{Round: l.record.Round, Rank: rank}.Key()})
		}
	}
}

// endDeparted ends the run because its last round cannot be run again: some members have departed. If a node was lost,
// failures that only report a lost peer count as consequences of that loss.
func (l *Leader) endDeparted(now time.Duration) {
	r := &l.round
	var nodes []string
	for rank, m := range r.members {
		if m.departed {
			nodes = append(nodes, l.nodeOf(rank))
		}
	}
	departed, lost := joinSome(nodes, ", ")+" had finished and left", l.lostMembers()
	o := rdzv.Outcome{Ending: rdzv.EndFailed, Restarts: l.restarts, Text: "not restarted: " + departed}
	first, failed := r.failures.likeliest()
	if !failed || lost != "" && r.failures.byRank[first].failure.Grade >= failure.GradePeer {
		o.Ending = rdzv.EndNodeLost
		o.Text = fmt.Sprintf("%s, and the job cannot be restarted because %s: run it again on all nodes. With a longer "+
			"--exit-barrier-timeout, nodes that finish wait for the others.", cmp.Or(lost, r.stopReason), departed)
		l.endRun(now, o)
		return
	}
	if lost != "" {
		o.Text = lost + "; " + o.Text
	}
	o.Cause, o.Others = r.failures.causes(now)
	f := l.failedRound(o.Cause)
	o.Rule, _ = Policy{FinalCodes: l.job.Policy.FinalCodes}.verdict(repeats{}, f)
	l.endRun(now, o)
}

// countLost counts the members that were lost.
func (r *roundState) countLost() (n int) {
	for i := range r.members {
		if m := &r.members[i]; m.status == lost || m.status == unstopped {
			n++
		}
	}
	return n
}

// lostMembers names the members of the round that were lost or have left before they finished; empty if there are none.
func (l *Leader) lostMembers() string {
	var texts []string
	for rank, m := range l.round.members {
		switch m.status {
		case lost:
			texts = append(texts, l.nodeOf(rank)+" was lost")
		case left:
			texts = append(texts, l.nodeOf(rank)+" has left")
		case unstopped:
			texts = append(texts, l.nodeOf(rank)+" did not stop its workers in time")
		case active, stopped, done:
		}
	}
	return joinSome(texts, ", ")
}
