package rounds

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The leader suspects a hang when every node with workers reports that its workers have shown no progress for long
// (Report.Quiet). It asks one agent to look at all workers. If that agent finds a hang, the leader informs the other
// nodes. With an action, a second look must find the same hang before the round fails.
//
//	all quiet ─look─▶ no hang ─pause─▶ look again
//	              └─▶ hang: reported ─pause─▶ second look ─the same, and it may act─▶ the round fails
//	a node is no longer quiet: start again
//
// A new leader starts again from what the agents report.

const (
	// autoTimeout is the least time without progress with --hang-timeout=auto.
	autoTimeout = time.Minute
	// minLookPause is the least time between two looks.
	minLookPause = 10 * time.Second
	// lookTimeout is how long the leader waits for the finding of a look.
	lookTimeout = LookReplyTimeout + 20*time.Second
	// autoActTimeout is the least time without progress before a hang ends a round, if the user gave no --hang-timeout.
	autoActTimeout = 5 * time.Minute
)

// hangState is the state of the leader's search for a hang in the running round.
type hangState struct {
	quiet   int // active members that reported Quiet
	learned int // those of them that have shown a steady cadence before

	looks    int          // looks ordered in this round during this leader's term
	lookedAt OptionalTime // when the look under way was ordered
	examiner int          // rank of the node that was asked last
	next     OptionalTime // the earliest time of the next look
	found    *HangFinding // the hang that was found last; nil once a node is no longer quiet
}

// setQuiet records whether an active member's workers show no progress.
func (r *roundState) setQuiet(m *roundMember, q *rdzv.Quiet) {
	recount(&r.hang.quiet, &m.quiet, q != nil && q.Held == "")
	recount(&r.hang.learned, &m.learned, q != nil && q.Learned)
}

// allQuiet reports whether no worker of the round shows progress. Workers that have exited with 0 show none. One node
// at least must have seen progress before.
func (r *roundState) allQuiet() bool {
	return r.active > 0 && r.active+r.done == len(r.members) && r.hang.quiet == r.active && r.hang.learned > 0
}

// hangPause is the pause between two looks.
func (l *Leader) hangPause() time.Duration {
	timeout := l.job.Hangs.Timeout
	if l.job.Hangs.Auto {
		timeout = autoTimeout
	}
	return max(minLookPause, timeout/2)
}

// checkHang orders a look at all workers if one is due.
func (l *Leader) checkHang(now time.Duration) {
	h := &l.round.hang
	switch {
	case l.job.Hangs.off():
		return
	case !l.round.allQuiet():
		h.lookedAt, h.found = OptionalTime{}, nil
		return
	case h.lookedAt.Set && now < h.lookedAt.At+lookTimeout:
		return
	case h.lookedAt.Set: // nothing was found in time: the next look comes at once
		h.lookedAt = OptionalTime{}
	case h.next.Set && now < h.next.At, h.found != nil && !l.job.Hangs.acts():
		return
	}
	for rank := range l.round.members {
		if m := &l.round.members[rank]; m.participant != nil && m.status == active && m.participant.mismatch == "" {
			h.looks, h.examiner, h.lookedAt = h.looks+1, rank, OptionalTime{now, true}
			l.orderHang(rank, HangOrder{Look: &HangLook{l.fence(), h.looks}})
			return
		}
	}
}

// orderHang sends an order about a hang to a member, which has its place in the round already.
func (l *Leader) orderHang(rank int, o HangOrder) {
	m := &l.round.members[rank]
	if m.participant != nil && m.participant.mismatch == "" {
		l.reply(m.participant, Answer{Kind: Run, Hang: &o})
	}
}

// recordFinding records the finding of the look under way.
func (l *Leader) recordFinding(now time.Duration, rank int, f *HangFinding) {
	h := &l.round.hang
	if f == nil || !h.lookedAt.Set || rank != h.examiner || f.Look != (HangLook{l.fence(), h.looks}) {
		return
	}
	h.lookedAt, h.next = OptionalTime{}, OptionalTime{now + l.hangPause(), true}
	if !l.round.allQuiet() {
		return
	}
	if !f.Hang {
		h.found = nil
		return
	}
	before := h.found
	h.found = f
	switch {
	case before == nil || !slices.Equal(before.Ranks, f.Ranks):
		l.announceHang(rank, f)
	case f.Still && l.mayAct(f):
		l.orderHang(rank, HangOrder{Act: &f.Look})
	}
}

// announceHang sends a node's finding to the other nodes.
func (l *Leader) announceHang(examiner int, f *HangFinding) {
	found := &HangFound{Look: f.Look, Host: l.hostOf(examiner), Summary: f.Summary, Ranks: f.Ranks, Quiet: f.Quiet}
	for rank := range l.round.members {
		if rank != examiner && l.round.members[rank].status == active {
			l.orderHang(rank, HangOrder{Found: found})
		}
	}
}

// mayAct reports whether a hang that was found twice ends the round. Every node must have replied. No worker may have
// written any output for long, even output that is no sign of life: a thread that still works may have written it.
// Without a --hang-timeout of the user, there must also be proof that no worker can go on by itself, for at least
// autoActTimeout.
func (l *Leader) mayAct(f *HangFinding) bool {
	hangs := l.job.Hangs
	switch {
	case !hangs.acts() || !f.Complete || f.AtWork || f.Failure == nil:
		return false
	case hangs.Auto:
		return f.Proof && min(f.Quiet, f.SinceOutput) >= autoActTimeout
	}
	return min(f.Quiet, f.SinceOutput) >= hangs.Timeout
}

// endsJob reports whether the round failed because of a hang and the hang action ends the job.
func (l *Leader) endsJob() bool {
	for _, report := range l.round.failures.byRank {
		if report.failure.Kind == failure.Hang {
			return l.job.Hangs.Action == HangStop
		}
	}
	return false
}

// LookReplyTimeout is how long an agent that looks at the job's workers waits for the replies of the other agents. Each
// of them watches its workers for about a second, and reads their stacks within 2 s.
const LookReplyTimeout = 10 * time.Second
