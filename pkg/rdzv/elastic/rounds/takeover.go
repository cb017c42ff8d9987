package rounds

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

// SavedState is what a new leader finds in the store.
type SavedState struct {
	StoreHistory StoreHistory
	StoreInvites int
	Job          *Job
	Begun        int            // the N in the key of Job, state/job/N
	JobRevision  coord.Revision // the create-revision of that key, which names the run
	Record       *Record
	Outcome      *rdzv.Outcome
	Answers      []SavedAnswer
	Agents       []AgentArrival
	History      RunHistory // of a finished run, and of the runs before it
	Departed     []DepartedMember
	Succeeded    []Successes
	Waiting      int
	Preemption   *rdzv.Preemption // nil for none
}

// AddJob takes over the parameters of the run from their key, unless those of a later key are known. It returns an
// error if JobKey does not return such a key.
func (s *SavedState) AddJob(key string, create coord.Revision, job Job) error {
	begun, err := strconv.Atoi(strings.TrimPrefix(key, PrefixJob))
	if err == nil && (s.Job == nil || begun > s.Begun) {
		s.Job, s.Begun, s.JobRevision = &job, begun, create
	}
	return err
}

// SavedAnswer is the last answer that an earlier leader gave to an agent.
type SavedAnswer struct {
	ID     coord.SessionID
	Answer Answer
}

// AgentArrival is an agent's report and the revision of its session's first report.
type AgentArrival struct {
	ID      coord.SessionID
	Arrived coord.Revision
	Report  Report
}

// NewLeader returns a leader that takes over from the state in the store. It assumes that workers of the recorded round
// may run on each member that has not reported otherwise.
func NewLeader(epoch coord.Revision, saved SavedState, now time.Duration) *Leader {
	l := &Leader{
		epoch: epoch, store: saved.StoreHistory, job: saved.Job, begun: saved.Begun, outcome: saved.Outcome,
		record: Record{Round: -1}, storeInvites: saved.StoreInvites,
		history: saved.History, participants: participantSet{
			byID:       make(map[coord.SessionID]*participant, len(saved.Agents)),
			byIdentity: make(map[string]*participant, len(saved.Agents)),
		},
	}
	l.history.now, l.waiting = now, saved.Waiting
	l.writes = append(l.writes, l.forgetFormerJob()) // the former leader may have failed before it did
	if past := l.history.Past; len(past) > 0 {
		l.record.Round = past[len(past)-1].Run.Round
		l.firstRound = l.record.Round + 1
	}
	if saved.Record != nil && l.outcome == nil {
		l.takeOverRound(now, *saved.Record, saved.Answers)
	}
	l.takeOverDepartures(saved.Departed)
	l.takeOverSuccesses(saved.Succeeded)
	if l.outcome != nil {
		l.state = ended
		l.resultExpiry = OptionalTime{now + outcomeTTL(l.job), true}
	}
	l.takeOverPreemption(saved.Preemption)
	l.takeOverAgents(now, saved.Agents)
	for _, a := range saved.Answers {
		switch p := l.participants.byID[a.ID]; {
		case p == nil:
			l.writes = append(l.writes, Write{Key: PrefixAnswer + string(a.ID)})
		case p.lastAnswer.Kind == "": // remembered, so that it is deleted with its agent
			p.invited = a.Answer.JoinStore
			p.lastAnswer = Answer{
				Fence: a.Answer.Fence, Kind: a.Answer.Kind, Note: a.Answer.Note, JoinStore: a.Answer.JoinStore,
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
func (l *Leader) takeOverRound(now time.Duration, r Record, answers []SavedAnswer) {
	l.record, l.hasRound, l.state, l.termStart, l.inherited = r, true, running, now, true
	// The former leader may have failed before it deleted the record of the round before.
	l.writes = append(l.writes, Write{Key: RoundKey(r.Round - 1)})
	l.budget = restoreBudget(r, l.job, now)
	l.restarts, l.shortRounds, l.unreachedRounds, l.repeats = r.Restarts, r.Short, r.Unreached, r.Repeats
	l.round.members = make([]roundMember, len(r.Members))
	l.round.active = len(r.Members)
	for rank, m := range r.Members {
		l.round.members[rank].workers = m.Nproc
	}
	for _, a := range answers { // the former leader may have ended the round already
		if a.Answer.Kind == Halt && a.Answer.Grow && a.Answer.Fence.Round == r.Round {
			l.round.unchargedSince, l.round.stopReason = OptionalTime{math.MinInt64, true}, a.Answer.Note
		}
	}
}

// takeOverAgents adds the agents that have a session, in the order of their arrival, so that a later agent supersedes
// an earlier one of the same node. Members of the recorded round that have no session and have not succeeded are lost.
func (l *Leader) takeOverAgents(now time.Duration, agents []AgentArrival) {
	ranks := make(map[coord.SessionID]int, len(l.round.members))
	for r, m := range l.record.Members {
		ranks[m.ID] = r
	}
	slices.SortFunc(agents, func(a, b AgentArrival) int { return cmp.Compare(a.Arrived, b.Arrived) })
	for _, a := range agents {
		p := l.addParticipant(a)
		if r, isMember := ranks[a.ID]; isMember {
			l.round.members[r].setParticipant(p)
			p.rank = r
			l.round.present++
		}
		if round, unstopped := l.record.Unstopped[a.ID]; unstopped {
			p.unstoppedRound = round
		}
	}
	if l.round.present == 0 && l.round.departed == 0 && l.hasRound && l.outcome == nil && l.preemption == nil {
		l.beginRun(*l.job)
		l.abandonRun()
	}
	for _, a := range agents { // once all have been added
		l.handleReport(now, l.participants.byID[a.ID], a.Report)
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
