package elastic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// step is a moment in a leader's life: what it sees then, and what it writes.
//
//	a ready | busy | failing G | done     what agent a reports of the recorded round; G grades its failure, which is as old as the step.
//	                                      An agent that was not there before joins; +id=b, +stuck, +max=N, +hint=N, +silent, +leaving, +close, +old=S,
//	                                      +launch=ID, +restarts, +command=C, +earlier,
//	                                      +grade=G and +final (of a failure), +shown=G (what a worker had shown before it was stopped), +up=S (since the round
//	                                      began), +blind=S (since when it has not reached the worker store) change what it says.
//	a gone                                its session has ended
//	new leader                            another one takes over, with what the store holds; that comes by itself where a run is begun anew
//
// want has the writes in order, answers that follow each other sorted: "round 2: a b (1)" is a record and its restarts, "run2: a b" are
// answers, "late: a" is an End or Refuse for an agent that came after the end, "note: a" is a Wait that people are to see, "result: ..." is the outcome, "forget ..." a deletion.
type step struct {
	at   float64 // seconds
	do   string  // several by ";"
	want string
}

// script plays steps.
type script struct {
	t      *testing.T
	job    Job
	l      *leader
	epoch  coord.Revision
	rev    coord.Revision
	agents map[string]*agentArrival
	store  map[string]any
	ended  coord.Revision // when the result was written
}

func play(t *testing.T, job Job, steps []step) *script {
	t.Helper()
	s := &script{t: t, job: job, agents: map[string]*agentArrival{}, store: map[string]any{}}
	s.takeOver(0)
	s.playMore(steps)
	return s
}

// goOn plays more steps.
func (s *script) playMore(steps []step) {
	t := s.t
	t.Helper()
	for i, st := range steps {
		now := time.Duration(st.at * float64(time.Second))
		for do := range strings.SplitSeq(st.do, ";") {
			if do = strings.TrimSpace(do); do != "" {
				s.see(now, do)
			}
		}
		writes, wake, timed := s.l.decide(now)
		if timed && wake <= now {
			t.Errorf("step %d, %v: wants to be called again at %v", i, now, wake)
		}
		got := s.write(writes)
		if s.l.history.rerunBegun {
			s.takeOver(now)
			writes, _, _ = s.l.decide(now)
			got += ", " + s.write(writes)
		}
		if got != st.want {
			t.Errorf("step %d, %v, %s:\n got %q\nwant %q", i, now, st.do, got, st.want)
		}
	}
}

func (s *script) takeOver(now time.Duration) {
	var f savedState
	for key, value := range s.store {
		switch v := value.(type) {
		case Job:
			f.job = &v
		case Record:
			if f.record == nil || v.Round > f.record.Round {
				f.record = &v
			}
		case rdzv.Outcome:
			f.outcome, f.history.resultRevision = &v, s.ended
		case finishedRun:
			f.history.finished = &v
		case []pastRun:
			f.history.past = v
		case Answer:
			f.answers = append(f.answers, savedAnswer{coord.SessionID(strings.TrimPrefix(key, prefixAnswer)), v})
		}
	}
	for _, a := range s.agents {
		f.agents = append(f.agents, *a)
	}
	slices.SortFunc(f.answers, func(a, b savedAnswer) int { return strings.Compare(string(a.id), string(b.id)) })
	s.rev++
	s.epoch = s.rev
	s.l = newLeader(s.epoch, f, now)
}

func (s *script) see(now time.Duration, do string) {
	words := strings.Fields(do)
	name, what := words[0], words[1]
	if do == "new leader" {
		s.takeOver(now)
		return
	}
	s.rev++
	a := s.agents[name]
	if what == "gone" {
		delete(s.agents, name)
		s.l.observe(now, coord.SessionID(name), 0, nil)
		return
	}
	if a == nil {
		a = &agentArrival{id: coord.SessionID(name), arrived: s.rev}
		a.report = Report{Job: s.job, Node: Node{Host: name, Identity: name, Hint: -1, Nproc: 1}}
		s.agents[name] = a
	}
	r := &a.report
	if before := slices.IndexFunc(s.l.record.Members, func(p RecordMember) bool { return string(p.ID) == name }); before >= 0 {
		if r.Fence.Round != s.l.record.Round {
			r.Unreached = nil
		}
		r.Fence = s.l.fence()
	}
	r.Phase, r.Store.Nonce, r.Stuck = Phase(what), fmt.Sprint(name, s.rev), false
	if r.Phase == Busy {
		r.Failure, r.Unreached = nil, nil
	}
	rest := words[2:]
	if r.Phase == Failing {
		grade, err := strconv.Atoi(rest[0])
		if err != nil {
			s.t.Fatal(err)
		}
		r.Failure = &rdzv.Failure{Failure: failure.Failure{Host: name, ExitCode: 1}, Grade: grade}
		rest = rest[1:]
	}
	for _, word := range rest {
		s.option(r, word)
	}
	report := *r
	s.l.observe(now, a.id, a.arrived, &report)
}

func (s *script) option(r *Report, word string) {
	key, value, _ := strings.Cut(strings.TrimPrefix(word, "+"), "=")
	number, _ := strconv.ParseFloat(value, 64)
	seconds := time.Duration(number * float64(time.Second))
	switch key {
	case "id":
		r.Node.Identity = value
	case "stuck":
		r.Stuck = true
	case "max":
		r.Job.Max = int(number)
	case "hint":
		r.Node.Hint = int(number)
	case "launch":
		r.Node.Launch.ID = value
	case "restarts":
		r.Node.Launch.Restarts = true
	case "command":
		r.Node.Command = value
	case "earlier":
		r.Earlier = true
	case "silent":
		r.Silent = true
	case "leaving":
		r.Leaving = true
	case "close":
		r.Close = true
	case "old":
		r.Failure.Age = seconds
	case "grade":
		r.Failure.Grade = int(number)
	case "shown":
		r.Failure = &rdzv.Failure{Failure: failure.Failure{Host: r.Node.Host}, Grade: int(number), OnlyStopped: true}
	case "final":
		r.Failure.Final = true
	case "blind":
		r.Unreached = &Unreached{For: seconds, Why: "i/o timeout"}
	case "up":
		r.Uptime = seconds
	default:
		s.t.Fatalf("%q: what is that?", word)
	}
}

// lateFor goes before an answer to an agent that came after the end.
const lateFor = "late "

// note is a Wait that is to be shown to people.
const note = "note"

// write does the writes and tells them.
func (s *script) write(writes []write) string {
	var out []string
	var who []string
	var last string
	flush := func() {
		if last != "" {
			slices.Sort(who)
			out = append(out, last+": "+strings.Join(who, " "))
		}
		who, last = nil, ""
	}
	sortAnswers(writes)
	for _, kind := range []string{"", string(Replace), string(Refuse), string(Halt), string(Wait), note, string(Run), string(End), lateFor + string(End), lateFor + string(Refuse)} {
		for _, w := range writes {
			id, isAnswer := strings.CutPrefix(w.key, prefixAnswer)
			a, _ := w.value.(Answer)
			if isAnswer && w.value == nil {
				delete(s.store, w.key)
				continue
			}
			if !isAnswer && kind == "" {
				flush()
				if text := s.writeOne(w); text != "" {
					out = append(out, text)
				}
				continue
			}
			is := string(a.Kind)
			if a.Next > 0 {
				is = note
			}
			if a.Late != nil {
				is = lateFor + is
			}
			if !isAnswer || is != kind {
				continue
			}
			s.store[w.key] = a
			label := kind
			if a.Kind == Run || a.Kind == Halt {
				label += strconv.Itoa(a.Fence.Round)
			}
			if label != last {
				flush()
				last = label
			}
			who = append(who, id)
		}
		flush()
	}
	return strings.Join(out, ", ")
}

func (s *script) writeOne(w write) string {
	if w.value == nil {
		_, there := s.store[w.key]
		delete(s.store, w.key)
		switch {
		case there && w.key == keyJob:
			return "forget job"
		case there && w.key == keyResult:
			return "forget result"
		}
		return ""
	}
	s.store[w.key] = w.value
	switch v := w.value.(type) {
	case Record:
		var names []string
		for _, m := range v.Members {
			names = append(names, string(m.ID))
		}
		text := fmt.Sprintf("round %d: %s (%d)", v.Round, strings.Join(names, " "), v.Restarts)
		if !w.create {
			text += " not create-only"
		}
		return text
	case finishedRun:
		return ""
	case []pastRun:
		return fmt.Sprintf("past: %d", len(v))
	case rdzv.Outcome:
		s.ended = s.rev + 1
		text := "result: " + string(v.Ending)
		if v.Cause != nil {
			text += " by " + v.Cause.Host
		}
		for _, o := range v.Others {
			text += " beside " + o.Host
		}
		return text
	case Job:
		return "job"
	}
	return "?"
}

// ordinary are the parameters of most scripts.
func defaultJob() Job {
	return Job{
		Version: "1", Min: 2, Max: 3, MaxRestarts: 1, MaxNodeLosses: 3, LastCall: time.Second, JoinTimeout: time.Minute, JoinSettle: 500 * time.Millisecond,
		Rejoin: 10 * time.Second, Grow: GrowNow, ResultTTL: 10 * time.Minute,
	}
}
