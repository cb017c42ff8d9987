package elastic

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// rerun is what a leader knows of the finished run whose result it keeps, and of the runs before.
//
// A run is begun anew only when no other session of the finished run is left. So no worker of it is left either, and no agent misses the result.
// Then the leader deletes the result and ends its term: the next term has a higher epoch, and finds nothing of the finished run but its entry in past.
type rerun struct {
	run  *finishedRun // of the outcome; nil before there is one, and where only the outcome was found
	past []pastRun
	// since is the create-revision of a result that was found: who arrived before was there at the end. It is 0 for a run that ended in this term,
	// and then there has those who were.
	since coord.Revision
	there map[coord.SessionID]bool
	wall  time.Time     // when the leader's clock showed 0
	now   time.Duration // when the leader saw or decided something last
	// hosted says that the store goes with the run: nothing is begun anew there.
	hosted  bool
	waiting moment // since when somebody waits to begin the run anew
	noted   bool   // those who wait were told who is still there
	begun   bool   // the result was deleted: the term is to end
}

// clock is the wall clock now.
func (r *rerun) clock() time.Time { return r.wall.Add(r.now) }

// keep notes what later agents have to know of the run that ends now.
func (l *leader) keep() write {
	r := &l.rerun
	r.run = &finishedRun{Epoch: l.epoch, Round: l.record.Round, Ended: r.clock().Unix(), TTL: l.job.ResultTTL, There: map[string]int{}}
	r.there = make(map[coord.SessionID]bool, len(l.seats))
	hosts := map[string]bool{}
	for rank := range l.parts {
		host := l.hostOf(rank)
		if !hosts[host] && len(hosts) < maxNamed {
			r.run.Hosts = append(r.run.Hosts, host)
		}
		hosts[host] = true
	}
	r.run.HostCount = len(hosts)
	for _, s := range slices.SortedFunc(maps.Values(l.seats), func(a, b *seat) int { return cmp.Compare(a.arrived, b.arrived) }) {
		r.there[s.id] = true
		r.run.add(s.report.Node)
	}
	return write{key: keyFinished, value: *r.run, ttl: l.job.ResultTTL}
}

// wasThere reports whether an agent belongs to the finished run for certain: its session is older than the result, or it was in a round, or
// it had a session in an earlier store of the run.
func (l *leader) wasThere(s *seat) bool {
	return l.rerun.there[s.id] || s.arrived < l.rerun.since || s.report.Fence.Epoch != 0 || s.report.Earlier
}

// tellFinished tells an agent of a run that has ended what becomes of it.
func (l *leader) tellFinished(s *seat) {
	switch {
	case l.isPast(s):
		l.tellPast(s)
	case l.wasThere(s):
		l.tell(s, Answer{Kind: End, Outcome: l.ended})
	case s.told.Kind == End, s.told.Kind == Refuse, s.told.Kind == Wait: // since the end, and that stands
	default:
		l.tellJudged(s)
	}
}

// tellJudged tells a newcomer.
func (l *leader) tellJudged(s *seat) {
	r := &l.rerun
	ended := r.run.late(r.clock())
	switch r.run.judge(s.report.Node, l.ended.Ending) {
	case learns:
		l.tell(s, Answer{Kind: End, Outcome: l.ended, Late: ended})
	case anew:
		r.waiting.begin(r.now)
		l.tell(s, Answer{Kind: Wait, Note: "the run before this one is about to end", Again: r.hosted})
	case refused:
		l.tell(s, Answer{Kind: Refuse, Note: "the run has already finished: " + string(l.ended.Ending), Outcome: l.ended, Late: ended})
	}
}

// isPast reports whether an agent belongs to an earlier run with this id.
func (l *leader) isPast(s *seat) bool {
	return len(l.rerun.past) > 0 && s.rank < 0 && pastOf(l.rerun.past, &s.report) != nil
}

// pastNote is why an agent of an earlier run does not fit.
const pastNote = "the launch of this node has ended"

// tellPast tells an agent of an earlier run how that has ended.
func (l *leader) tellPast(s *seat) {
	if p := pastOf(l.rerun.past, &s.report); p != nil && s.told.Kind != End {
		l.tell(s, Answer{Kind: End, Outcome: &p.Outcome, Late: p.Run.late(l.rerun.clock())})
	}
}

// beginAnew begins the run anew if somebody waits for that and nobody else is there.
func (l *leader) beginAnew() {
	r := &l.rerun
	switch {
	case l.ended == nil || !r.waiting.set || r.begun:
		return
	case len(l.seats) == 0: // who waited has gone
		r.waiting, r.noted = moment{}, false
		return
	case !l.onlyWaiting():
		l.noteOthers()
		return
	case r.hosted:
		return
	}
	r.begun = true
	var launches []Launch
	for _, s := range l.seats {
		launches = append(launches, s.report.Node.Launch)
	}
	l.out = append(l.out, write{key: keyResult}, write{key: keyFinished})
	if past := retire(r.past, r.run, *l.ended, launches); len(past) > 0 {
		l.out = append(l.out, write{key: keyPast, value: past, ttl: past[len(past)-1].Run.TTL})
	}
}

// onlyWaiting reports whether all agents that are there, if any, wait to begin the run anew.
func (l *leader) onlyWaiting() bool {
	for _, s := range l.seats {
		if s.told.Kind != Wait || l.wasThere(s) {
			return false
		}
	}
	return true
}

// noteAt is when those who wait to begin the run anew are told who is still there.
func (r *rerun) noteAt() moment {
	return moment{r.waiting.at + firstNote, r.waiting.set && !r.noted}
}

// noteOthers tells those who wait to begin the run anew, once, who is still there.
func (l *leader) noteOthers() {
	r := &l.rerun
	if at := r.noteAt(); !at.set || r.now < at.at {
		return
	}
	r.noted = true
	var hosts []string
	for _, s := range l.seats {
		if s.told.Kind != Wait && len(hosts) < maxNamed {
			hosts = append(hosts, s.report.Node.Host)
		}
	}
	slices.Sort(hosts)
	note := "the run before this one has ended, but its agents are still there: " + strings.Join(hosts, ", ")
	for _, s := range l.seats {
		if s.told.Kind == Wait {
			l.tell(s, Answer{Kind: Wait, Note: note, Next: maxNotePause, Again: r.hosted})
		}
	}
}
