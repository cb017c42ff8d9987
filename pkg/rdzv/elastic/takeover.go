package elastic

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// savedState is what a new leader finds in the store.
type savedState struct {
	storeHistory storeHistory
	storeInvites int
	job          *Job
	begun        int            // as in the key of job
	jobRevision  coord.Revision // the create-revision of that key, which names the run
	record       *Record
	outcome      *rdzv.Outcome
	answers      []savedAnswer
	agents       []agentArrival
	history      runHistory // of a finished run, and of the runs before it
	departed     []departedMember
	succeeded    []successes
	waiting      int
	preemption   *rdzv.Preemption // nil for none
}

// addJob takes over the parameters of the run from their key, unless those of a later key are known.
func (s *savedState) addJob(key string, create coord.Revision, job Job) error {
	begun, err := strconv.Atoi(strings.TrimPrefix(key, prefixJob))
	if err == nil && (s.job == nil || begun > s.begun) {
		s.job, s.begun, s.jobRevision = &job, begun, create
	}
	return err
}

// savedAnswer is the last answer that an earlier leader gave to an agent.
type savedAnswer struct {
	id     coord.SessionID
	answer Answer
}

// agentArrival is an agent's report and the revision of its session's first report.
type agentArrival struct {
	id      coord.SessionID
	arrived coord.Revision
	report  Report
}

// newLeader takes over from the state in the store. Workers of the recorded round may be running on each member that
// has not reported otherwise.
func newLeader(epoch coord.Revision, saved savedState, now time.Duration) *leader {
	l := &leader{
		epoch: epoch, store: saved.storeHistory, job: saved.job, begun: saved.begun, outcome: saved.outcome,
		record: Record{Round: -1}, storeInvites: saved.storeInvites,
		history: saved.history, participants: newParticipantSet(len(saved.agents)),
	}
	l.history.now, l.waiting = now, saved.waiting
	l.writes = append(l.writes, l.forgetFormerJob()) // the former leader may have failed before it did
	if past := l.history.past; len(past) > 0 {
		l.record.Round = past[len(past)-1].Run.Round
		l.firstRound = l.record.Round + 1
	}
	if saved.record != nil && l.outcome == nil {
		l.takeOverRound(now, *saved.record, saved.answers)
	}
	l.takeOverDepartures(saved.departed)
	l.takeOverSuccesses(saved.succeeded)
	if l.outcome != nil {
		l.state = ended
		l.resultExpiry = optionalTime{now + outcomeTTL(l.job), true}
	}
	l.takeOverPreemption(saved.preemption)
	l.takeOverAgents(now, saved.agents)
	for _, a := range saved.answers {
		switch p := l.participants.byID[a.id]; {
		case p == nil:
			l.writes = append(l.writes, write{key: prefixAnswer + string(a.id)})
		case p.lastAnswer.Kind == "": // remembered, so that it is deleted with its agent
			p.invited = a.answer.JoinStore
			p.lastAnswer = Answer{
				Fence: a.answer.Fence, Kind: a.answer.Kind, Note: a.answer.Note, JoinStore: a.answer.JoinStore,
			}
		}
	}
	l.countIdle(now)
	if l.state == running {
		l.assignRanks()
	}
	return l
}

// takeOverRound continues a decided round.
func (l *leader) takeOverRound(now time.Duration, r Record, answers []savedAnswer) {
	l.record, l.hasRound, l.state, l.termStart, l.inherited = r, true, running, now, true
	// The former leader may have failed before it deleted the record of the round before.
	l.writes = append(l.writes, write{key: roundKey(r.Round - 1)})
	l.budget = restoreBudget(r, l.job, now)
	l.restarts, l.shortRounds, l.unreachedRounds, l.repeats = r.Restarts, r.Short, r.Unreached, r.Repeats
	l.round.members = make([]roundMember, len(r.Members))
	l.round.active = len(r.Members)
	for rank, m := range r.Members {
		l.round.members[rank].workers = m.Nproc
	}
	for _, a := range answers { // the former leader may have ended the round already
		if a.answer.Kind == Halt && a.answer.Grow && a.answer.Fence.Round == r.Round {
			l.round.unchargedSince, l.round.stopReason = optionalTime{math.MinInt64, true}, a.answer.Note
		}
	}
}

// takeOverAgents adds the agents that have a session, in the order of their arrival, so that a later agent supersedes
// an earlier one of the same node. Members of the recorded round that have no session and
// have not succeeded are lost.
func (l *leader) takeOverAgents(now time.Duration, agents []agentArrival) {
	ranks := make(map[coord.SessionID]int, len(l.round.members))
	for r, m := range l.record.Members {
		ranks[m.ID] = r
	}
	slices.SortFunc(agents, func(a, b agentArrival) int { return cmp.Compare(a.arrived, b.arrived) })
	for _, a := range agents {
		p := l.addParticipant(a)
		if r, isMember := ranks[a.id]; isMember {
			l.round.members[r].setParticipant(p)
			p.rank = r
			l.round.present++
		}
		if round, unstopped := l.record.Unstopped[a.id]; unstopped {
			p.unstoppedRound = round
		}
	}
	if l.round.present == 0 && l.round.departed == 0 && l.hasRound && l.outcome == nil && l.preemption == nil {
		l.beginRun(*l.job)
		l.abandonRun()
	}
	for _, a := range agents { // once all have been added
		l.handleReport(now, l.participants.byID[a.id], a.report)
	}
	for r := range l.round.members {
		switch m := &l.round.members[r]; {
		case m.participant == nil && l.state == running:
			l.removeMember(now, r, lost)
		case m.participant != nil && m.departed:
			l.answerDeparture(m)
		}
	}
}
