package rounds

import (
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// The leader suspects a hang when no worker of the running round has shown progress for long, as every node with
// workers reports (Report.Quiet). It asks one agent to look at all workers. If that agent finds a hang, the other
// nodes learn of it. With an action, a second look must find the same before the round is failed.
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
	// lookTimeout is how long the leader waits for what a look has found.
	lookTimeout = LookReplyTimeout + 20*time.Second
	// autoActTimeout is how long no worker may have shown progress, at the least, before a hang ends a round without a
	// --hang-timeout that the user has given.
	autoActTimeout = 5 * time.Minute
)

// hangState is how far the leader is with a suspected hang of the running round.
type hangState struct {
	quiet   int // active members that have reported so
	learned int // those of them that have shown a steady cadence before

	looks    int          // that were ordered in this round, since this leader's term began
	lookedAt OptionalTime // when the look under way was ordered
	examiner int          // rank of the node that was asked last
	next     OptionalTime // no other look before
	found    *HangFinding // the hang that was found last; nil once a node is no longer quiet
}

// setQuiet records whether an active member's workers show no progress.
func (r *roundState) setQuiet(m *roundMember, q *rdzv.Quiet) {
	count := func(n *int, was *bool, is bool) {
		switch {
		case is && !*was:
			*n++
		case !is && *was:
			*n--
		}
		*was = is
	}
	count(&r.hang.quiet, &m.quiet, q != nil && q.Held == "")
	count(&r.hang.learned, &m.learned, q != nil && q.Learned)
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

// recordFinding records what the look under way has found.
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

// announceHang tells the other nodes what a node has found.
func (l *Leader) announceHang(examiner int, f *HangFinding) {
	found := &HangFound{Look: f.Look, Host: l.hostOf(examiner), Summary: f.Summary, Ranks: f.Ranks, Quiet: f.Quiet}
	for rank := range l.round.members {
		if rank != examiner && l.round.members[rank].status == active {
			l.orderHang(rank, HangOrder{Found: found})
		}
	}
}

// mayAct reports whether a hang that was found twice ends the round. Every node must have replied, and no worker may
// have written anything for long, not even what is no sign of life: it can be the work of a thread. If the user has not
// said how long a pause may be, each worker must be unable to go on by itself, and must have been so for long.
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

// endsJob reports whether the round has failed by a hang that is to end the job.
func (l *Leader) endsJob() bool {
	for _, report := range l.round.failures.byRank {
		if report.failure.Kind == failure.Hang {
			return l.job.Hangs.Action == HangStop
		}
	}
	return false
}

// LookReplyTimeout is how long an agent waits for the others when it looks at the job's workers. They watch them for
// about a second, and read their stacks within 2 s.
const LookReplyTimeout = 10 * time.Second
