package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
)

// An agent that waits for long gets notices that say what it waits for: the first after FirstNotice, the next ones
// after pauses that double up to MaxNoticePause. A spare of a running job lacks nothing, so its pauses grow to
// maxSparePause.
const (
	FirstNotice    = 5 * time.Second
	MaxNoticePause = time.Minute
	maxSparePause  = time.Hour
)

// maxNoticeRecipients is how many agents get notices; the first to arrive do. Each notice is a write and a message, and
// nobody reads the logs of thousands of nodes.
const maxNoticeRecipients = 1000

// maxNamed is how many nodes or ranks a message lists.
const maxNamed = 8

// notices is the schedule of the notices.
type notices struct {
	waiters []*participant // those that have begun to wait since the last Decide
	timer   OptionalTime   // when the next notice is due
	sendNow bool           // all notices are due: the wait will be a long one
}

// waitState is how long a participant has waited, and how many notices it got.
type waitState struct {
	waiting     bool         // it has no workers and waits for a round
	since       OptionalTime // set by the first Decide after it began to wait
	nextNotice  OptionalTime // in whole seconds, so that one commit holds the notices of many agents
	noticesSent int
}

// NoticePause returns the pause after the given number of notices: FirstNotice, doubled for each of them, and at most
// longest.
func NoticePause(sent int, longest time.Duration) time.Duration {
	return min(longest, FirstNotice<<min(sent, 20))
}

// trackWait records whether a participant waits. The next Decide sets the time.
func (n *notices) trackWait(p *participant, waiting bool) {
	switch {
	case !waiting:
		p.wait = waitState{}
	case !p.wait.waiting:
		p.wait.waiting = true
		n.waiters = append(n.waiters, p)
	}
}

// startWaits sets the time of the waits that have begun since the last Decide.
func (n *notices) startWaits(now time.Duration) {
	for _, p := range n.waiters {
		if p.wait.waiting && !p.wait.since.Set {
			p.wait.since, p.wait.nextNotice = OptionalTime{now, true}, ceilSecond(now+FirstNotice)
			n.timer.TakeEarlier(p.wait.nextNotice)
		}
	}
	n.waiters = nil
}

// sendNotices sends the notices that are due. It costs O(1) until the timer fires.
func (l *Leader) sendNotices(now time.Duration) {
	n := &l.notices
	n.startWaits(now)
	all := n.sendNow
	if l.outcome != nil || !all && (!n.timer.Set || now < n.timer.At) {
		return
	}
	n.timer, n.sendNow = OptionalTime{}, false
	longest := MaxNoticePause
	if l.state == running {
		longest = maxSparePause
	}
	common := l.commonReason(now)
	for _, p := range l.noticeRecipients() {
		if all || now >= p.wait.nextNotice.At {
			p.wait.noticesSent++
			p.wait.nextNotice = ceilSecond(now + NoticePause(p.wait.noticesSent, longest))
			own := l.ownReason(now, p)
			l.reply(p, Answer{
				Kind: Wait, Note: cmp.Or(own, common), Next: p.wait.nextNotice.At - now,
				Missing: own == "" && l.formation.tooFewSince.Set,
			})
		}
		n.timer.TakeEarlier(p.wait.nextNotice)
	}
}

// ceilSecond rounds up to whole seconds.
func ceilSecond(at time.Duration) OptionalTime {
	return OptionalTime{(at + time.Second - 1).Truncate(time.Second), true}
}

// noticeRecipients lists the participants that wait and may get notices, the first to arrive at the front.
func (l *Leader) noticeRecipients() []*participant {
	var all []*participant
	for _, p := range l.participants.byID {
		if p.wait.since.Set {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *participant) int { return cmp.Compare(a.arrived, b.arrived) })
	return all[:min(len(all), maxNoticeRecipients)]
}

// ownReason says why this participant waits although others need not; empty if commonReason is its reason too.
func (l *Leader) ownReason(now time.Duration, p *participant) string {
	identity := p.report.Node.Identity
	if l.budget.isQuarantined(identity) && !l.willUseQuarantined() {
		left := l.budget.quarantinedUntil[identity] - now
		return l.budget.quarantineNote(identity) + ", for another " + FormatLeft(left)
	}
	if why := l.spareReason(); why != "" {
		return why + ", for " + FormatLeft(now-p.wait.since.At) + " so far"
	}
	return ""
}

// spareReason says why the running round takes in no further node; empty if it does or if no round runs. A preemption
// is a reason in every state.
func (l *Leader) spareReason() string {
	members := l.round.members
	switch {
	case l.preemption != nil:
		return "the job is being preempted: no further round begins"
	case l.state != running:
		return ""
	case l.round.done > 0:
		return "some nodes of the job have finished already"
	case len(members) >= l.maxMembers():
		return fmt.Sprintf("the job has its %s: this one is a spare", plural.Of(len(members), "node"))
	case l.nextSize(len(members)+l.participants.eligible) <= len(members):
		return fmt.Sprintf("the job has %d nodes and takes %d at once (--nnodes-multiple, --world-size-multiple): this one "+
			"is a spare until enough have come", len(members), l.job.Multiple)
	case l.job.Grow != GrowNow:
		return "the job is running: this node joins at its next restart"
	}
	return ""
}

// commonReason says what all nodes that could be in the next round wait for, and for how long.
func (l *Leader) commonReason(now time.Duration) string {
	f, r, n := &l.formation, &l.round, l.participants.eligible
	left := func(t OptionalTime, d time.Duration) string { return FormatLeft(t.At + d - now) }
	switch {
	case l.state == forming && l.preemption != nil:
		return "the job is being preempted: no round begins"
	case l.state == running && r.growAfter.Set:
		return "the job is running: newcomers have just disturbed it, so it takes in others in " + left(r.growAfter, 0)
	case l.state == running:
		return "the job is running: it begins a round with the new nodes in " + left(r.growSince, l.job.JoinSettle)
	case l.state == halting:
		return fmt.Sprintf("%s may take up to %s more to stop workers", l.unstoppedNodes(), left(r.haltedAt, l.stopLimit()))
	case l.state == forming && !f.tooFewSince.Set && l.mustWaitForSessions(now, n >= l.job.Max) &&
		(n >= l.job.Max || l.earlierSessionsEnd(false).At > f.enoughSince.At+l.job.LastCall):
		return fmt.Sprintf("%s joined, %d at most; the round begins in %s: the store is new, and workers of an earlier one "+
			"may be alive until then", haveNodes(n), l.job.Max, left(l.earlierSessionsEnd(n >= l.job.Max), 0))
	case f.tooFewSince.Set:
		return fmt.Sprintf("%d of %s have joined%s; the job gives up in %s",
			n, l.neededNodes(), l.missingNodes(), left(f.tooFewSince, l.job.JoinTimeout))
	case l.willUseQuarantined() && now < f.useQuarantinedAt.At:
		return fmt.Sprintf("%d of %s have joined%s; the round begins with quarantined nodes in %s",
			n, l.neededNodes(), l.missingNodes(), left(f.useQuarantinedAt, 0))
	case f.backoffUntil.Set && now < f.backoffUntil.At:
		return fmt.Sprintf("the next round begins in %s: the last %s failed within --min-uptime (%s)",
			left(f.backoffUntil, 0), plural.Of(l.shortRounds, "round"), seconds.Format(l.job.MinUptime))
	case l.hasRound:
		return fmt.Sprintf("%s joined; the round begins in %s, or as soon as all have come",
			haveNodes(n), left(f.enoughSince, l.job.JoinSettle))
	default:
		return fmt.Sprintf("%s joined, %d at most%s; the round begins in %s, or as soon as all have come",
			haveNodes(n), l.job.Max, l.missingRanks(), left(f.enoughSince, l.job.LastCall))
	}
}

// haveNodes returns "1 node has" or "n nodes have".
func haveNodes(n int) string {
	if n == 1 {
		return "1 node has"
	}
	return plural.Of(n, "node") + " have"
}

// neededNodes says how many nodes a round must have, such as "at least 2 nodes".
func (l *Leader) neededNodes() string {
	if l.job.Static || l.job.Min == l.job.Max {
		return plural.Of(l.job.Max, "node")
	}
	return "at least " + plural.Of(l.job.Min, "node")
}

// unstoppedNodes names the members of the round whose workers may still run.
func (l *Leader) unstoppedNodes() string {
	var names []string
	for rank := range l.round.members {
		if l.round.members[rank].status == active && len(names) < maxNamed {
			names = append(names, l.hostOf(rank))
		}
	}
	text := strings.Join(names, ", ")
	if more := l.round.active - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// FormatLeft formats the time that is left: whole seconds, rounded up; negative ones as 0s.
func FormatLeft(d time.Duration) string { return seconds.Format(ceilSecond(max(0, d)).At) }

// StillRunning names the nodes of the running round whose workers run, once another node has finished; empty otherwise.
func (l *Leader) StillRunning() string {
	if l.state == running && l.round.done > 0 {
		return l.unstoppedNodes()
	}
	return ""
}
