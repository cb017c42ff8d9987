package rounds

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// RunHistory is what a leader knows of the finished run whose result it keeps, and of the runs before that one.
//
// A rerun begins only when no session of the finished run is left. So none of its workers is left, and all its agents
// have read the result. The leader then deletes the result and ends its term. The next term has a higher epoch, and
// finds nothing of the finished run but its entry in past.
type RunHistory struct {
	Finished *FinishedRun // nil until the run ends, and if only its outcome was found
	Past     []PastRun
	// ResultRevision is the create-revision of a result that was found: agents that arrived before it were present at
	// the end. If the run ended in this term, it is 0 and presentAtEnd has those agents.
	ResultRevision coord.Revision
	presentAtEnd   map[coord.SessionID]bool

	WallOrigin       time.Time     // the wall clock when the leader's clock showed 0
	now              time.Duration // of the leader's last observation or decision
	StoreEndsWithRun bool          // so a rerun cannot begin in this store
	waitingSince     OptionalTime  // since when agents wait to begin a rerun
	noticeSent       bool          // those agents know which agents they wait for
	rerunBegun       bool          // the result is deleted, and the term must end
}

// wallNow returns the wall clock's time.
func (h *RunHistory) wallNow() time.Time { return h.WallOrigin.Add(h.now) }

// recordFinished returns the write that records, for later agents, which nodes and launches the ending run had.
func (l *Leader) recordFinished() Write {
	f := &FinishedRun{
		Epoch: l.epoch, Round: l.record.Round, Ended: l.history.wallNow().Unix(), TTL: l.job.ResultTTL,
		Nodes: map[string]int{},
	}
	hosts := map[string]bool{}
	for rank := range l.round.members {
		host := l.hostOf(rank)
		if !hosts[host] && len(hosts) < maxNamed {
			f.Hosts = append(f.Hosts, host)
		}
		hosts[host] = true
	}
	f.HostCount = len(hosts)
	byArrival := func(a, b *participant) int { return cmp.Compare(a.arrived, b.arrived) }
	present := make(map[coord.SessionID]bool, len(l.participants.byID))
	for _, p := range slices.SortedFunc(maps.Values(l.participants.byID), byArrival) {
		present[p.id] = true
		f.add(p.report.Node)
	}
	for rank, m := range l.round.members {
		if m.participant == nil { // it has left, or was lost
			f.addMember(l.record.Members[rank].Identity, m.node)
		}
	}
	l.history.Finished, l.history.presentAtEnd = f, present
	return Write{Key: KeyFinished, Value: *f, TTL: l.job.ResultTTL}
}

// belongsToFinished reports whether an agent certainly belongs to the finished run: its session is older than the
// result, or it was in a round, or it had a session in an earlier store of the run.
func (l *Leader) belongsToFinished(p *participant) bool {
	h := &l.history
	return h.presentAtEnd[p.id] || p.arrived < h.ResultRevision || p.report.Fence.Epoch != 0 || p.report.Earlier
}

// replyFinished answers an agent of a run that has ended.
func (l *Leader) replyFinished(p *participant) {
	switch {
	case l.isOfPastRun(p):
		l.replyPastRun(p)
	case l.belongsToFinished(p):
		l.reply(p, Answer{Kind: End, Outcome: l.outcome})
	case p.lastAnswer.Kind == End, p.lastAnswer.Kind == Refuse, p.lastAnswer.Kind == Wait: // this answer stands
	default:
		l.replyArrival(p)
	}
}

// replyArrival answers an agent that has come after the end.
func (l *Leader) replyArrival(p *participant) {
	h := &l.history
	late := h.Finished.Lateness(h.wallNow())
	switch h.Finished.JudgeArrival(p.report.Node, l.outcome.Ending) {
	case LearnResult:
		l.reply(p, Answer{Kind: End, Outcome: l.outcome, Late: late})
	case StartRerun:
		h.waitingSince.setOnce(h.now)
		l.reply(p, Answer{Kind: Wait, Note: "the run before this one is about to end", Again: h.StoreEndsWithRun})
	case RefuseArrival:
		note := "the run has already finished: " + string(l.outcome.Ending)
		l.reply(p, Answer{Kind: Refuse, Note: note, Outcome: l.outcome, Late: late})
	}
}

// isOfPastRun reports whether an agent belongs to an earlier run with this id.
func (l *Leader) isOfPastRun(p *participant) bool {
	return len(l.history.Past) > 0 && p.rank < 0 && FindPastRun(l.history.Past, &p.report) != nil
}

// pastRunMismatch is why an agent of an earlier run does not fit the job.
const pastRunMismatch = "the launch of this node has ended"

// replyPastRun answers an agent of an earlier run with that run's outcome.
func (l *Leader) replyPastRun(p *participant) {
	if past := FindPastRun(l.history.Past, &p.report); past != nil && p.lastAnswer.Kind != End {
		l.reply(p, Answer{Kind: End, Outcome: &past.Outcome, Late: past.Run.Lateness(l.history.wallNow())})
	}
}

// beginRerun deletes the finished run if agents wait to begin it again and all others have left. The next term begins
// the rerun.
func (l *Leader) beginRerun() {
	h := &l.history
	switch {
	case l.outcome == nil || !h.waitingSince.Set || h.rerunBegun:
		return
	case len(l.participants.byID) == 0: // the waiting agents have left
		h.waitingSince, h.noticeSent = OptionalTime{}, false
		return
	case !l.allAwaitRerun():
		l.noticeRerunWaiters()
		return
	case h.StoreEndsWithRun:
		return
	}
	h.rerunBegun = true
	var launches []Launch
	for _, p := range l.participants.byID {
		launches = append(launches, p.report.Node.Launch)
	}
	l.writes = append(l.writes, Write{Key: KeyResult}, Write{Key: KeyFinished}, Write{Key: KeyClose})
	if past := appendPastRun(h.Past, h.Finished, *l.outcome, launches); len(past) > 0 {
		l.writes = append(l.writes, Write{Key: KeyPast, Value: past, TTL: past[len(past)-1].Run.TTL})
	}
}

// allAwaitRerun reports whether all agents that have a session wait to begin a rerun. It is true if there are none.
func (l *Leader) allAwaitRerun() bool {
	for _, p := range l.participants.byID {
		if p.lastAnswer.Kind != Wait || l.belongsToFinished(p) {
			return false
		}
	}
	return true
}

// noticeAt returns when the agents that wait to begin a rerun get a notice of which agents they wait for.
func (h *RunHistory) noticeAt() OptionalTime {
	return OptionalTime{h.waitingSince.At + FirstNotice, h.waitingSince.Set && !h.noticeSent}
}

// noticeRerunWaiters sends one notice to the agents that wait to begin a rerun. It names agents of the finished run
// that have not ended.
func (l *Leader) noticeRerunWaiters() {
	h := &l.history
	if at := h.noticeAt(); !at.Set || h.now < at.At {
		return
	}
	h.noticeSent = true
	var hosts []string
	for _, p := range l.participants.byID {
		if p.lastAnswer.Kind != Wait && len(hosts) < maxNamed {
			hosts = append(hosts, p.report.Node.Host)
		}
	}
	slices.Sort(hosts)
	note := "the run before this one has ended, but some of its agents have not: " + strings.Join(hosts, ", ")
	for _, p := range l.participants.byID {
		if p.lastAnswer.Kind == Wait {
			l.reply(p, Answer{Kind: Wait, Note: note, Next: MaxNoticePause, Again: h.StoreEndsWithRun})
		}
	}
}
