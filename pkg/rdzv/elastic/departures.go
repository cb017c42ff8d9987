package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// A node whose workers have all exited with 0 waits at the exit barrier for the others. When its agent does not want to
// wait any longer, it asks to depart (Report.Departing). The leader grants that only while the round runs, and records
// it before it answers, so that a later leader knows it too. From then on the node's success stands: the round cannot
// be run again, because the node is gone. If the others fail, the job has failed.

// departedMember is what the leader records of a member that has departed.
type departedMember struct {
	Round int  `json:"round"`
	Rank  int  `json:"rank"`
	Node  Node `json:"node"`
}

// key returns the key of the record.
func (d departedMember) key() string { return fmt.Sprintf("%s%d/%d", prefixDeparted, d.Round, d.Rank) }

// requestDeparture notes that a member asks to depart.
func (r *roundState) requestDeparture(rank int) {
	if m := &r.members[rank]; m.status == done && !m.departed {
		r.departing = append(r.departing, rank)
	}
}

// grantDepartures lets the members depart that have asked to and still wait at the exit barrier.
func (l *leader) grantDepartures() {
	r := &l.round
	ranks := r.departing
	r.departing = nil
	for _, rank := range ranks {
		m := &r.members[rank]
		if p := m.participant; m.status == done && !m.departed && p != nil && p.mismatch == "" {
			m.departed, r.departed = true, r.departed+1
			d := departedMember{Round: l.record.Round, Rank: rank, Node: p.report.Node}
			l.writes = append(l.writes, write{key: d.key(), value: d})
			l.answerDeparture(m)
		}
	}
}

// answerDeparture tells a member that its departure is recorded.
func (l *leader) answerDeparture(m *roundMember) {
	note := "1 other node still runs"
	if n := len(l.round.members) - l.round.done; n != 1 {
		note = fmt.Sprintf("%d other nodes still run", n)
	}
	l.reply(m.participant, Answer{Kind: Depart, Note: note})
}

// takeOverDepartures marks the members of the recorded round that have departed.
func (l *leader) takeOverDepartures(departed []departedMember) {
	for _, d := range departed {
		if l.outcome != nil || d.Round != l.record.Round || d.Rank >= len(l.round.members) {
			l.writes = append(l.writes, write{key: d.key()})
			continue
		}
		m := &l.round.members[d.Rank]
		m.departed, m.node = true, &d.Node
		l.round.departed++
		l.round.setStatus(m, done)
	}
}

// forgetDepartures deletes the records of departures.
func (l *leader) forgetDepartures() {
	for rank, m := range l.round.members {
		if m.departed {
			l.writes = append(l.writes, write{key: departedMember{Round: l.record.Round, Rank: rank}.key()})
		}
	}
}

// endDeparted ends the run because a round has failed that cannot be run again: members of it have departed.
func (l *leader) endDeparted(now time.Duration) {
	r := &l.round
	var hosts []string
	for rank, m := range r.members {
		if m.departed {
			hosts = append(hosts, l.hostOf(rank))
		}
	}
	o := rdzv.Outcome{Ending: rdzv.EndFailed, Restarts: l.restarts}
	o.Text = fmt.Sprintf("not restarted: %s had finished and left", joinSome(hosts, ", "))
	if r.failures.anyFailed {
		o.Cause, o.Others = r.failures.causes(now)
	} else {
		o.Text = r.stopReason + "; " + o.Text
	}
	l.endRun(now, o)
}
