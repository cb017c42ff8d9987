package rounds

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// participant is an agent that has a session, as the leader knows it.
type participant struct {
	id             coord.SessionID
	arrived        coord.Revision
	report         Report
	rank           int    // in the recorded round; -1: not a member
	unstoppedRound int    // round whose workers it did not stop in time; -1: none
	mismatch       string // why it does not fit the job; empty if it does
	superseded     bool   // another agent has come with its identity
	counted        struct{ eligible, quarantined, matching bool }
	wait           waitState
	idle           int    // how many of its workers count as idle
	invited        bool   // was asked to help to keep the store while it waits
	lastAnswer     Answer // only the fields that reply compares
	writeIndex     int    // index of lastAnswer in Leader.writes, if Decide has not returned it yet
}

// participantSet holds all participants, and counts those that meet certain conditions.
type participantSet struct {
	byID        map[coord.SessionID]*participant
	byIdentity  map[string]*participant // the newest of each node
	eligible    int                     // how many could be in the next round now
	quarantined int                     // how many could be in the next round if they were not quarantined
	matching    int                     // how many fit the job
}

// count updates the counts after a participant's conditions have changed.
func (s *participantSet) count(p *participant, eligible, quarantined, matching bool) {
	recount(&s.eligible, &p.counted.eligible, eligible)
	recount(&s.quarantined, &p.counted.quarantined, quarantined)
	recount(&s.matching, &p.counted.matching, matching)
}

// recount updates n, the number of items that meet a condition, after was of one item has become is.
func recount(n *int, was *bool, is bool) {
	switch {
	case is && !*was:
		*n++
	case !is && *was:
		*n--
	}
	*was = is
}

// addParticipant adds an agent that was not known. Of two agents of one node the later one supersedes the other.
func (l *Leader) addParticipant(a AgentArrival) *participant {
	added := &participant{id: a.ID, arrived: a.Arrived, report: a.Report, rank: -1, unstoppedRound: -1}
	l.participants.byID[a.ID] = added
	name := a.Report.Node.Identity
	newest, other := added, l.participants.byIdentity[name]
	if other != nil && other.arrived > newest.arrived {
		newest, other = other, newest
	}
	l.participants.byIdentity[name] = newest
	if other != nil {
		l.supersede(other)
	}
	return added
}

// supersede records that another agent has come with the identity of old. This does not prove that the workers of old
// are gone: old stays a member of the round until it reports so or its session ends. A member whose workers have all
// succeeded needs no agent.
func (l *Leader) supersede(old *participant) {
	old.superseded = true
	l.review(old)
	if old.rank >= 0 && l.state != ended && l.round.members[old.rank].status != done {
		l.requestStop("%s has a new agent", old.report.Node.Host)
	}
}

// handleReport records an agent's report.
func (l *Leader) handleReport(now time.Duration, p *participant, r Report) {
	p.report = r
	l.recordStoreMember(p)
	l.recordEarlierStore(now, &r)
	if r.Before != nil && (l.before == nil || r.Before.Total() > l.before.Total()) {
		l.before = r.Before
	}
	if p.rank >= 0 && l.state != ended {
		l.handleMemberReport(now, p, r)
	}
	l.review(p)
}

// handleMemberReport records what a member of the recorded round reports of that round.
func (l *Leader) handleMemberReport(now time.Duration, p *participant, r Report) {
	m, host := &l.round.members[p.rank], r.Node.Host
	if m.departed {
		return
	}
	if r.Leaving && r.Phase != Done && m.status != done {
		l.requestStop("%s leaves", host)
	}
	if r.Fence.Round != l.record.Round || r.Fence.Epoch == 0 {
		return
	}
	if m.status == unstopped { // judged without this member already, which may be in the next round
		if r.Phase == Ready {
			m.status = stopped
		}
		return
	}
	l.backdate(now, r.Uptime)
	l.recordEntry(now, &r)
	l.recordUnreached(now, m, r.Unreached)
	if r.Failure != nil && (!l.round.unchargedSince.Set || now-r.Failure.Age < l.round.unchargedSince.At) {
		l.round.failures.record(now, p.rank, *r.Failure)
		switch {
		case r.Failure.OnlyStopped:
		case r.Failure.Kind == failure.Hang:
			l.requestStop("the job hangs, as %s has seen", host)
		case r.Failure.Waited:
			l.requestStop(rdzv.WhyWaited+" on %s", host)
		default:
			l.requestStop(rdzv.WhyFailed+" on %s", host)
		}
	}
	m.end = &p.report
	switch {
	case r.Phase == Busy && m.status == active:
		l.round.setStuck(now, m, r.Stuck)
		l.round.setQuiet(m, r.Quiet)
		l.recordFinding(now, p.rank, r.Hang)
	case r.Phase == Busy:
	case r.Phase == Failing:
		l.requestStop(rdzv.WhyFailed+" on %s", host)
	case r.Phase == Ready && (m.status == active || m.status == done):
		l.requestStop("%s has stopped its workers", host)
		l.round.setStatus(m, stopped)
	case r.Phase == Done && m.status == active && l.state == running: // once the round halts, only Ready will do
		l.round.setStatus(m, done)
		l.round.succeeded = append(l.round.succeeded, p.rank)
	}
	if r.Departing && r.Phase == Done {
		l.round.requestDeparture(p.rank)
	}
}

// backdate learns from a member's uptime, after a change of leaders, when the round began. The round's record holds
// ages as of its commit, so the entries of the budget become older by the same time.
func (l *Leader) backdate(now, uptime time.Duration) {
	began, at := &l.round.startedAt, now-uptime
	if began.Set && began.At <= at || !began.Set && at >= l.termStart {
		return
	}
	was := l.termStart
	if began.Set {
		was = began.At
	}
	*began = OptionalTime{at, true}
	l.budget.shiftBack(was - at)
}

// requestStop records why the running round cannot go on. The first reason stands.
func (l *Leader) requestStop(format, host string) {
	if l.state == running && l.round.stopReason == "" {
		l.round.stopReason = fmt.Sprintf(format, host)
	}
}

// requestUnchargedStop is requestStop for a round in which no worker has failed: unless there is an earlier reason,
// failures from now on are consequences of the stop and are not charged.
func (l *Leader) requestUnchargedStop(now time.Duration, format, host string) {
	if l.state == running && l.round.stopReason == "" {
		l.round.unchargedSince.setOnce(now)
	}
	l.requestStop(format, host)
}

// handleSessionEnd removes an agent whose session has ended.
func (l *Leader) handleSessionEnd(now time.Duration, p *participant) {
	ps, identity := &l.participants, p.report.Node.Identity
	delete(ps.byID, p.id)
	l.removeStoreMember(p)
	if p.rank < 0 && p.counted.eligible && !p.report.Leaving && l.hasRound && l.state != running && l.state != ended {
		l.budget.recordLoss(now, identity, l.job) // the round may have been ended to let this node in
	}
	if ps.byIdentity[identity] == p {
		delete(ps.byIdentity, identity)
	}
	ps.count(p, false, false, false)
	l.idle.change(p, false)
	if p.lastAnswer.Kind != "" {
		l.writes = append(l.writes, Write{Key: PrefixAnswer + string(p.id)})
	}
	if p.rank < 0 {
		return
	}
	status := lost
	if p.report.Leaving {
		status = left
	}
	if l.state != ended {
		l.removeMember(now, p.rank, status)
	}
	l.round.members[p.rank].participant = nil
	l.round.members[p.rank].endedAt.setOnce(now)
	l.round.present--
}

// review decides again whether an agent fits the job, whether it could be in the next round, and what to answer it.
func (l *Leader) review(p *participant) {
	if l.job == nil {
		if l.outcome != nil || l.isOfPastRun(p) { // the job's parameters are deleted once the run has ended
			l.updateAnswer(p)
		}
		return
	}
	p.mismatch = ""
	if l.isOfPastRun(p) {
		p.mismatch = pastRunMismatch
	} else if diff := p.report.Job.differenceFrom(*l.job); diff != "" {
		p.mismatch = diff
	} else if p.superseded && !l.isSaving(p) {
		p.mismatch = l.replacedBy(p)
	}
	fits := p.mismatch == ""
	if fits && p.report.Close {
		l.RequestClose(cmp.Or(p.report.CloseBy, p.report.Node.Host))
	}
	if fits && p.report.Preempt != nil {
		l.requestPreemption(*p.report.Preempt, p.report.PreemptAge)
	}
	waiting := fits && !p.report.Leaving && !l.mayHaveWorkers(p)
	quarantined := l.budget.isQuarantined(p.report.Node.Identity)
	l.idle.change(p, p.rank < 0 && fits)
	l.participants.count(p, waiting && !quarantined, waiting && quarantined, fits)
	l.notices.trackWait(p, waiting)
	l.mayInvite = l.mayInvite || waiting
	l.updateAnswer(p)
}

// replacedBy says which agent has come in place of a superseded one.
func (l *Leader) replacedBy(old *participant) string {
	node, host := old.report.Node, old.report.Node.Host
	if p := l.participants.byIdentity[node.Identity]; p != nil && p != old {
		host = p.report.Node.Host
	}
	switch {
	case node.Hint < 0:
		return fmt.Sprintf("another agent has come for this node, on %s", host)
	case host == node.Host:
		return fmt.Sprintf("another agent has come with the same node rank, %d, on %s", node.Hint, host)
	}
	return fmt.Sprintf("another agent has come with the same node rank, %d, on %s, not on %s: if both are nodes of the "+
		"job, give each node its own --node-rank", node.Hint, host, node.Host)
}

// mayHaveWorkers reports whether workers of the agent may run, or whether the agent has yet to confirm that the workers
// of an earlier round are gone.
func (l *Leader) mayHaveWorkers(p *participant) bool {
	if p.rank >= 0 && l.round.members[p.rank].status != stopped {
		return true
	}
	cleared := p.report.Fence.Round
	if p.report.Fence.Epoch == 0 { // it has not been in a round yet
		cleared = -1
	}
	return p.report.Phase != Ready || p.unstoppedRound > cleared
}

// updateAnswer answers an agent unless its last answer still stands. Members of the round that fit the job get their
// answers elsewhere: assignRanks, orderHalt, answerDeparture and orderHang.
func (l *Leader) updateAnswer(p *participant) {
	switch {
	case p.rank >= 0 && l.round.members[p.rank].departed: // its success stands, however the run ends
	case l.outcome != nil:
		l.replyFinished(p)
	case l.isOfPastRun(p):
		l.replyPastRun(p)
	case p.superseded && !l.isSaving(p):
		l.reply(p, Answer{Kind: Replace, Note: p.mismatch})
	case p.mismatch != "":
		l.reply(p, Answer{Kind: Refuse, Note: p.mismatch})
	case p.rank >= 0 || p.unstoppedRound >= 0 && l.mayHaveWorkers(p):
	case l.isFinishedElsewhere(p):
		if l.state != running || p.report.Fence.Epoch == 0 || p.report.Fence.Round != l.record.Round {
			l.reply(p, Answer{Kind: Halt, Note: "the job runs again"})
		}
	case p.counted.quarantined && l.state == forming && l.participants.eligible < l.job.Min:
		// The round may need it after all. If the wait is long, sendNotices answers.
	case l.budget.isQuarantined(p.report.Node.Identity):
		l.replyWait(p, l.budget.quarantineNote(p.report.Node.Identity))
	default:
		l.replyWait(p, l.spareReason())
	}
}

// isFinishedElsewhere reports whether an agent waits at the exit barrier in another session than the one that was in
// the round: its session was lost, or its store was replaced.
func (l *Leader) isFinishedElsewhere(p *participant) bool {
	return p.rank < 0 && p.unstoppedRound < 0 && p.report.Phase == Done
}

// replyWait answers that an agent has to wait, and why, unless why is empty or was in the last answer.
func (l *Leader) replyWait(p *participant, why string) {
	last := &p.lastAnswer
	if why == "" || last.Kind == Wait && last.Fence == l.fence() && strings.HasPrefix(last.Note, why) {
		return
	}
	l.reply(p, Answer{Kind: Wait, Note: why})
}

// reply writes an answer unless the agent has it already.
func (l *Leader) reply(p *participant, a Answer) {
	a.Fence, a.JoinStore = l.fence(), a.Kind == Wait && p.invited
	key := Answer{
		Fence: a.Fence, Kind: a.Kind, Note: a.Note, JoinStore: a.JoinStore, Hang: a.Hang, Preemption: a.Preemption,
	}
	if p.lastAnswer == key {
		return
	}
	l.retractAnswer(p)
	p.lastAnswer, p.writeIndex = key, len(l.writes)
	l.writes = append(l.writes, Write{Key: PrefixAnswer + string(p.id), Value: a})
}

// retractAnswer takes back an answer that Decide has not returned yet.
func (l *Leader) retractAnswer(p *participant) {
	key := PrefixAnswer + string(p.id)
	if p.lastAnswer.Kind != "" && p.writeIndex < len(l.writes) && l.writes[p.writeIndex].Key == key {
		l.writes[p.writeIndex].Key, p.lastAnswer = "", Answer{}
	}
}
