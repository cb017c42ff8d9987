package rounds

import (
	"cmp"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// roundState is what the leader knows of the recorded round. The zero value is that of a round without members.
type roundState struct {
	members []roundMember // by rank
	active  int           // members whose workers may run
	done    int           // members whose workers have all succeeded
	present int           // members whose agent has a session

	departing []int          // ranks of members that ask to depart
	departed  int            // members that have departed
	succeeded []int          // ranks of members that have succeeded and are not recorded yet
	successes map[int][]byte // successes.Bits in the store, by chunk

	startedAt  OptionalTime // when the round was decided; after a change of leaders, what the members report
	enteredAt  OptionalTime // after a change of leaders, when the first member of those that confirm it entered the round
	note       string       // for the members; may be empty
	stopReason string       // why the round cannot go on; empty while it can
	failures   failureReports
	// unchargedSince is when the leader ended the round although no worker had failed. Failures from then on are
	// consequences of that end and are not charged.
	unchargedSince OptionalTime
	growSince      OptionalTime // when the first newcomer came to the running round
	growAfter      OptionalTime // before then the round is not ended for newcomers
	haltedAt       OptionalTime // when the members were told to stop
	haltUnwritten  bool         // the store does not have all Halt answers yet

	stuckCount    int // active members whose agent does not respond
	stuckSince    OptionalTime
	stuckHost     string       // host of the member that got stuck last
	storeDeadline OptionalTime // when a member has tried for too long to reach the worker store

	hang hangState
}

// roundMember is a node of the recorded round.
type roundMember struct {
	participant    *participant // nil once its session has ended
	node           *Node        // as its agent has reported it; nil if this leader has not seen the agent
	status         memberStatus
	stuck          bool         // its agent does not respond; only while status is active
	quiet, learned bool         // as in the member's rdzv.Quiet; only while status is active
	departed       bool         // it has left the exit barrier; its status stays done
	unreachedSince OptionalTime // since when it has tried in vain to reach the worker store

	workers int          // how many it has
	endedAt OptionalTime // when its session ended
	end     *Report      // its last report about the round; nil before
}

// setParticipant sets the agent of a member. The node stays known after the agent's session has ended.
func (m *roundMember) setParticipant(p *participant) { m.participant, m.node = p, &p.report.Node }

// memberStatus is the status of a member of the recorded round.
type memberStatus int

const (
	active    memberStatus = iota // its workers may run
	stopped                       // its workers have been stopped
	done                          // all its workers have succeeded
	left                          // its session has ended, as announced
	lost                          // its session has ended unannounced
	unstopped                     // it did not stop in time; the others go on without it
)

// setStatus sets the status of a member that has no worker left, or sets it back to active.
func (r *roundState) setStatus(m *roundMember, status memberStatus) {
	switch m.status {
	case active:
		r.setStuck(0, m, false)
		r.setQuiet(m, nil)
		r.active--
	case done:
		r.done--
	case stopped, left, lost, unstopped:
	}
	switch status {
	case active:
		r.active++
	case done:
		r.done++
	case stopped, left, lost, unstopped:
	}
	m.status = status
}

// allDone reports whether the workers of all members have succeeded.
func (r *roundState) allDone() bool { return len(r.members) > 0 && r.done == len(r.members) }

// setStuck records whether a member's agent does not respond.
func (r *roundState) setStuck(now time.Duration, m *roundMember, stuck bool) {
	if m.stuck == stuck {
		return
	}
	m.stuck = stuck
	if !stuck {
		if r.stuckCount--; r.stuckCount == 0 {
			r.stuckSince = OptionalTime{}
		}
		return
	}
	r.stuckCount++
	r.stuckSince.setOnce(now)
	r.stuckHost = m.participant.report.Node.Host
}

// stuckTimeout is how long the leader waits for an agent that does not respond, counted from the first such agent. If
// all agents get stuck, because they share a file system, a new round would be no better; they notice one after
// another.
func (l *Leader) stuckTimeout() time.Duration { return l.job.Rejoin / 4 }

// checkStuck ends the round if some agents do not respond while others do: the workers of the others may wait for the
// workers of the stuck agents forever.
func (l *Leader) checkStuck(now time.Duration) {
	r := &l.round
	if r.stuckCount > 0 && r.stuckCount < r.active+r.done && now >= r.stuckSince.At+l.stuckTimeout() {
		l.requestUnchargedStop(now, "the agent of %s does not respond", r.stuckHost)
	}
}

// hostOf names a member for people.
func (l *Leader) hostOf(rank int) string {
	if m := &l.round.members[rank]; m.node != nil {
		return m.node.Host
	}
	return cmp.Or(l.record.Members[rank].Host, fmt.Sprintf("node rank %d", rank))
}

// nodeOf names a member for people if several members may be on one host.
func (l *Leader) nodeOf(rank int) string {
	name := fmt.Sprintf("node rank %d", rank)
	if host := l.hostOf(rank); host != name {
		return fmt.Sprintf("%s (%s)", host, name)
	}
	return name
}

// assignRanks answers all active members of the recorded round with their place in it.
func (l *Leader) assignRanks() {
	l.mayInvite = true
	for rank, place := range placesOf(&l.record) {
		if m := l.round.members[rank]; m.participant != nil && m.status == active && m.participant.mismatch == "" {
			place.StoreEndsWithRun, place.JoinStore = l.history.StoreEndsWithRun, rank < l.storeInvites
			l.reply(m.participant, Answer{Kind: Run, Place: &place, Note: l.round.note})
		}
	}
}

// checkRound ends the running round if there is a reason to.
func (l *Leader) checkRound(now time.Duration) {
	r := &l.round
	if r.allDone() {
		l.endRun(now, rdzv.Outcome{Ending: rdzv.EndSucceeded, Restarts: l.record.Restarts})
		return
	}
	l.checkStuck(now)
	if r.stopReason != "" {
		l.haltRound(now, r.stopReason)
		return
	}
	l.recordSuccesses()
	l.grantDepartures()
	if l.checkWorkerStore(now) {
		return
	}
	l.checkGrowth(now)
	if l.state == running {
		l.checkHang(now)
	}
}

// checkGrowth ends the running round to let newcomers in: at once if the next round has Max nodes, or else JoinSettle
// after the first of them came.
func (l *Leader) checkGrowth(now time.Duration) {
	r, newcomers := &l.round, l.participants.eligible // a member becomes eligible only when the round halts
	grows := l.nextSize(len(r.members)+newcomers) > len(r.members)
	if !grows || r.done > 0 || l.job.Static || l.job.Grow != GrowNow {
		r.growSince = OptionalTime{}
		return
	}
	if r.growAfter = l.budget.growthPause(now); r.growAfter.Set {
		r.growSince = OptionalTime{}
		return
	}
	r.growSince.setOnce(now)
	if len(r.members)+newcomers < l.job.Max && now < r.growSince.At+l.job.JoinSettle {
		return
	}
	r.unchargedSince = OptionalTime{now, true}
	why := "a node has come"
	if newcomers > 1 {
		why = fmt.Sprintf("%d nodes have come", newcomers)
	}
	l.haltRound(now, why)
}

// haltRound ends the running round: all members have to stop their workers.
func (l *Leader) haltRound(now time.Duration, why string) {
	r := &l.round
	l.state, r.haltedAt, r.haltUnwritten, r.growSince = halting, OptionalTime{now, true}, true, OptionalTime{}
	l.orderHalt(why)
	for _, p := range l.participants.byID {
		if l.isFinishedElsewhere(p) {
			l.updateAnswer(p)
		}
	}
}

// orderHalt orders all members to stop their workers. It replaces an earlier order with other text.
func (l *Leader) orderHalt(why string) {
	r := &l.round
	for rank := range r.members {
		m := &r.members[rank]
		if m.participant == nil || m.departed {
			continue
		}
		if m.status == done { // it has to report Ready like the others
			r.setStatus(m, active)
		}
		if m.participant.mismatch == "" {
			l.reply(m.participant, Answer{Kind: Halt, Note: why, Grow: r.unchargedSince.Set, Preemption: l.preemption.order()})
		}
	}
}

// finishHalt judges the round once all its workers are gone. A member that has not stopped after Rejoin becomes
// unstopped, which also counts as lost.
func (l *Leader) finishHalt(now time.Duration) {
	r := &l.round
	if r.active > 0 {
		if now < r.haltedAt.At+l.stopLimit() {
			return
		}
		for rank := range r.members {
			if m := &r.members[rank]; m.status == active {
				r.setStatus(m, unstopped)
				m.participant.unstoppedRound = l.record.Round
				l.budget.recordLoss(now, l.record.Members[rank].Identity, l.job)
			}
		}
	}
	l.judgeRound(now)
}

// judgeRound decides what the round that has ended costs. If a node was lost or has left, the failures of the others
// are a consequence and nothing is charged. Otherwise the round is charged once, however many workers failed.
func (l *Leader) judgeRound(now time.Duration) {
	if l.preemption != nil {
		l.endPreempted(now)
		return
	}
	if l.round.departed > 0 {
		l.endDeparted(now)
		return
	}
	l.startForming()
	l.announceSuccesses()
	r, short := &l.round, 0
	unreached := l.judgeWorkerStore(now)
	switch {
	case !unreached:
		l.unreachedRounds = 0
	case l.unreachedRounds >= maxUnreached:
		l.endUnreached(now)
		return
	}
	if !unreached && r.failures.anyFailed {
		if o := l.stopRequested(now); o != nil {
			l.endRun(now, *o)
			return
		}
	}
	mayCharge := !unreached && r.failures.anyFailed && !l.membershipChanged()
	if mayCharge && !l.quarantineNewcomers(now) {
		if o := l.chargeFailure(now); o != nil {
			l.endRun(now, *o)
			return
		}
		l.restarts++
		if r.startedAt.Set && r.haltedAt.At-r.startedAt.At < l.job.MinUptime {
			short = l.shortRounds + 1
		}
	}
	l.shortRounds = short
	if short > 1 {
		pause := min(maxBackoff, minBackoff<<min(short-2, 16))
		l.formation.backoffUntil, l.notices.sendNow = OptionalTime{now + pause, true}, pause >= FirstNotice
	}
}

// The leader pauses before the next round if rounds fail too soon, one after the other: minBackoff before the third,
// and twice as long before each further one.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

// membershipChanged reports whether a member has left the round, is about to leave, or has not confirmed that it is
// still there.
func (l *Leader) membershipChanged() bool {
	for rank, m := range l.round.members {
		p := m.participant
		switch {
		case p == nil && m.status == done && rank != 0: // it had finished, and did not host the worker store
		case m.status == lost, m.status == left, m.status == unstopped, p == nil:
			return true
		case p.superseded, p.report.Leaving, p.report.Silent && p.report.Fence.Round == l.record.Round:
			return true
		}
	}
	return false
}

// removeMember ends a node's membership in the recorded round, because its session has ended. Nothing changes for a
// member whose workers had all succeeded.
func (l *Leader) removeMember(now time.Duration, rank int, status memberStatus) {
	m := &l.round.members[rank]
	switch m.status {
	case done, lost, left, unstopped:
		return
	case active, stopped:
	}
	l.round.setStatus(m, status)
	if status == left {
		l.requestStop("%s has left", l.hostOf(rank))
		return
	}
	identity := l.record.Members[rank].Identity
	l.budget.recordLoss(now, identity, l.job)
	if p := l.participants.byIdentity[identity]; p != nil { // the node's next agent may have arrived already
		l.review(p)
	}
	l.requestStop("%s was lost", l.hostOf(rank))
}
