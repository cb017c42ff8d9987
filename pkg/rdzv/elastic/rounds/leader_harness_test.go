package rounds

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// leaderTest is a script of events and the leader's writes.
type leaderTest struct {
	name  string
	job   Job
	steps []step
}

// playAll runs each script as a subtest.
func playAll(t *testing.T, tests []leaderTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { play(t, tt.job, tt.steps) })
	}
}

// step is events at one time, and the writes of the leader's next decision.
//
// do has the events, separated by ";":
//
//	a ready | busy | failing G | done   what agent a reports of the recorded round. G is the grade of its failure,
//	                                    which is as old as the step. An agent that is not there yet joins.
//	a gone                              the session of agent a ends
//	new leader                          another leader takes over from the store. This also happens when a rerun begins.
//
// These options change an agent's report; most of them last:
//
//	+id=b +hint=N +launch=ID +restarts +command=C   its node
//	+max=N                                          its job
//	+leaving +close +earlier +silent +departing     flags of the report; earlier is with a round
//	+idle                                           earlier, without a round
//	+from=N                                         it finished round N in another session, or in another store: -1
//	+stuck                                          its agent does not respond; until its next report
//	+old=S +grade=G +final                          age, grade and finality of its failure
//	+shown=G                                        a worker had shown a failure of that grade before it was stopped
//	+up=S                                           the round began S seconds ago
//	+quiet=S +new                                   no worker has shown progress for S seconds; it never had a cadence
//	+held                                           a debugger holds them
//	+hangs                                          its failure is a hang
//	+ranks=N                                        that rank is the likeliest reason for the hang; by default none
//	+hang +moving +proof +partly +for=S +look=N what its look number N (1) found: a hang, or movement;
//	                                                that all are blocked; that not all replied; for how long (400 s)
//	+changed                                        a worker has written something since the last look
//	+wrote=S                                        a worker has written something S seconds ago
//	+working                                        with a child of a worker at work
//	+code=N +step=N                                 the exit code of its failure; the last step of its workers
//	+stop +exclude                                  what a worker has written into its control file
//	+preempt=S +finished                            it has asked for a preemption S seconds ago; its workers had done all
//	+unreached=S                                    it has not reached the worker store for S seconds
//
// want has the writes in order. Answers in a row are sorted, and grouped by kind:
//
//	job                        the job's parameters
//	round 2: a b (1)           the record of round 2, its members, and the restarts charged
//	run2: a b, halt2: a b      Run and Halt for that round; save2 is a Halt of a preemption, preempted is its record
//	look1: a, act1: a, hang1: b orders about a hang, with the number of the look; hang is for those who did not look
//	wait: a, notice: a         a Wait, and one that is for people
//	departed 0/1               the record that rank 1 has left the exit barrier of round 0; "depart: a" is the answer
//	end: a, late end: a        an End, and one for an agent that came after the end; likewise refuse
//	result: failed by a        the outcome and its cause; "beside b" names another one
//	past: 1                    the earlier runs
//	forget job, forget result  a deletion
type step struct {
	at   float64 // seconds
	do   string
	want string
}

// defaultJob returns the parameters of most scripts.
func defaultJob() Job {
	return Job{
		Version: "1", Min: 2, Max: 3, MaxRestarts: 1, MaxNodeLosses: 3, LastCall: time.Second, JoinTimeout: time.Minute,
		JoinSettle: 500 * time.Millisecond, Rejoin: 10 * time.Second, Grow: GrowNow, ResultTTL: 10 * time.Minute,
	}
}

// jobWith returns defaultJob with a change.
func jobWith(change func(*Job)) Job {
	j := defaultJob()
	change(&j)
	return j
}

// twoNodeRound is a running round of a and b; a third node may join.
var twoNodeRound = []step{
	{0, "a ready; b ready", "job"},
	{1, "", "round 0: a b (0), run0: a b"},
	{1.1, "a busy; b busy", ""},
}

// threeNodeRound is a running round of as many nodes as may be.
var threeNodeRound = []step{
	{0, "a ready; b ready; c ready", "job, round 0: a b c (0), run0: a b c"},
	{0.1, "a busy; b busy; c busy", ""},
}

func after(before []step, then ...step) []step {
	return append(slices.Clip(before), then...)
}

// script plays steps to a leader and keeps what it writes.
type script struct {
	t           *testing.T
	job         Job
	l           *Leader
	epoch       coord.Revision
	rev         coord.Revision
	agents      map[string]*AgentArrival
	store       map[string]any
	resultWrite coord.Revision
	waiting     int // as in state/waiting
}

func play(t *testing.T, job Job, steps []step) *script {
	t.Helper()
	s := &script{t: t, job: job, agents: map[string]*AgentArrival{}, store: map[string]any{}}
	s.takeOver(0)
	s.playMore(steps)
	return s
}

func (s *script) playMore(steps []step) {
	t := s.t
	t.Helper()
	for i, st := range steps {
		now := time.Duration(st.at * float64(time.Second))
		for do := range strings.SplitSeq(st.do, ";") {
			if do = strings.TrimSpace(do); do != "" {
				s.event(now, do)
			}
		}
		writes, wake, timed := s.l.Decide(now)
		if timed && wake <= now {
			t.Errorf("step %d, %v: decide wants to be called again at %v", i, now, wake)
		}
		got := s.write(writes)
		if s.l.history.rerunBegun {
			s.takeOver(now)
			writes, _, _ = s.l.Decide(now)
			got += ", " + s.write(writes)
		}
		if got != st.want {
			t.Errorf("step %d, %v, %s:\n got %q\nwant %q", i, now, st.do, got, st.want)
		}
	}
}

// answerTo returns the last answer to an agent.
func (s *script) answerTo(name string) Answer {
	a, _ := s.store[PrefixAnswer+name].(Answer)
	return a
}

// takeOver starts a new leader from the store.
func (s *script) takeOver(now time.Duration) {
	var keys []simChange
	for _, key := range slices.Sorted(maps.Keys(s.store)) {
		keys = append(keys, simChange{key: key, value: s.store[key], create: s.resultWrite}) // others do not need it
	}
	for _, a := range s.agents {
		keys = append(keys, simChange{key: PrefixAgent + string(a.ID), value: a.Report, create: a.Arrived})
	}
	s.rev++
	s.epoch = s.rev
	s.l = NewLeader(s.epoch, savedStateOf(keys), now)
}

// event plays one event.
func (s *script) event(now time.Duration, do string) {
	words := strings.Fields(do)
	name, what, options := words[0], words[1], words[2:]
	if do == "new leader" {
		s.takeOver(now)
		return
	}
	s.rev++
	a := s.agents[name]
	if what == "gone" {
		delete(s.agents, name)
		s.l.Observe(now, coord.SessionID(name), 0, nil)
		return
	}
	if a == nil {
		a = &AgentArrival{ID: coord.SessionID(name), Arrived: s.rev}
		a.Report = Report{Job: s.job, Node: Node{Host: name, Identity: name, Hint: -1, Nproc: 1}}
		s.agents[name] = a
	}
	r := &a.Report
	if slices.ContainsFunc(s.l.record.Members, func(m RecordMember) bool { return string(m.ID) == name }) {
		if r.Fence.Round != s.l.record.Round {
			r.Unreached = nil
		}
		r.Fence = s.l.fence()
	}
	r.Phase, r.Store.Nonce, r.Stuck = Phase(what), fmt.Sprint(name, s.rev), false
	if r.Phase == Busy {
		r.Failure, r.Unreached, r.Quiet, r.Hang = nil, nil, nil, nil
	}
	if r.Phase == Failing {
		grade, err := strconv.Atoi(options[0])
		if err != nil {
			s.t.Fatal(err)
		}
		r.Failure = &rdzv.Failure{Failure: failure.Failure{Host: name, ExitCode: 1}, Grade: grade}
		options = options[1:]
	}
	for _, option := range options {
		s.option(r, option)
	}
	report := *r
	s.l.Observe(now, a.ID, a.Arrived, &report)
}

// option applies one option to a report.
func (s *script) option(r *Report, option string) {
	key, value, _ := strings.Cut(strings.TrimPrefix(option, "+"), "=")
	number, _ := strconv.ParseFloat(value, 64)
	seconds := time.Duration(number * float64(time.Second))
	flag := map[string]*bool{
		"stuck": &r.Stuck, "silent": &r.Silent, "departing": &r.Departing, "leaving": &r.Leaving, "close": &r.Close,
		"stop": &r.Stop, "exclude": &r.ExcludeNode, "finished": &r.Finished, "restarts": &r.Node.Launch.Restarts,
		"idle": &r.Earlier, // it had a session in an earlier store, and no round
	}[key]
	if flag != nil {
		*flag = true
		return
	}
	switch key {
	case "id":
		r.Node.Identity = value
	case "max":
		r.Job.Max = int(number)
	case "hint":
		r.Node.Hint = int(number)
	case "launch":
		r.Node.Launch.ID = value
	case "command":
		r.Node.Command = value
	case "earlier":
		r.HadRound = true
		r.Earlier = true
	case "from":
		if r.Fence = (Fence{Epoch: 1, Round: int(number)}); number < 0 {
			r.Fence, r.Earlier = Fence{}, true
		}
	case "old":
		r.Failure.Age = seconds
	case "grade":
		r.Failure.Grade = int(number)
	case "shown":
		r.Failure = &rdzv.Failure{Failure: failure.Failure{Host: r.Node.Host}, Grade: int(number), OnlyStopped: true}
	case "final":
		r.Failure.Final = true
	case "quiet":
		r.Quiet = &rdzv.Quiet{For: seconds, Learned: true}
	case "new":
		r.Quiet.Learned = false
	case "hangs":
		r.Failure.Kind = failure.Hang
	case "held":
		r.Quiet.Held = "a debugger"
	case "hang", "moving":
		r.Hang = &HangFinding{
			Look: HangLook{r.Fence, 1}, Hang: key == "hang", Complete: true, Still: true,
			Quiet: 400 * time.Second, SinceOutput: 400 * time.Second,
			Failure: &rdzv.Failure{Failure: failure.Failure{Host: "odd", Kind: failure.Hang}},
		}
	case "ranks":
		r.Hang.Ranks = []int{int(number)}
	case "look":
		r.Hang.Look.N = int(number)
	case "proof":
		r.Hang.Proof = true
	case "wrote":
		r.Hang.SinceOutput = seconds
	case "changed":
		r.Hang.Still = false
	case "working":
		r.Hang.AtWork = true
	case "partly":
		r.Hang.Complete = false
	case "for":
		r.Hang.Quiet = seconds
	case "preempt":
		r.Preempt, r.PreemptAge = &rdzv.Preemption{By: r.Node.Host}, seconds
	case "code":
		r.Failure.ExitCode = int(number)
	case "step":
		r.Steps = &StepTimes{Marks: []StepTime{{Step: int64(number)}}}
	case "unreached":
		r.Unreached = &Unreached{For: seconds, Why: "i/o timeout"}
	case "up":
		r.Uptime = seconds
	default:
		s.t.Fatalf("unknown option %q", option)
	}
}

// lateAnswer goes before the kind of an answer to an agent that came after the end.
const lateAnswer = "late "

// noticeAnswer is the kind of a Wait that is for people.
const noticeAnswer = "notice"

// write stores the writes and returns them as text.
func (s *script) write(writes []Write) string {
	var out, agents []string
	var last string
	flush := func() {
		if last != "" {
			slices.Sort(agents)
			out = append(out, last+": "+strings.Join(agents, " "))
		}
		agents, last = nil, ""
	}
	sortAnswers(writes)
	kinds := []string{
		"", string(Replace), string(Refuse), string(Halt), "save", string(Wait), noticeAnswer, string(Run), "look", "act", "hang",
		string(Depart), string(End),
		lateAnswer + string(End), lateAnswer + string(Refuse),
	}
	for _, kind := range kinds {
		for _, w := range writes {
			id, isAnswer := strings.CutPrefix(w.Key, PrefixAnswer)
			a, _ := w.Value.(Answer)
			if isAnswer && w.Value == nil {
				delete(s.store, w.Key)
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
				is = noticeAnswer
			}
			if a.Preemption != nil {
				is = "save"
			}
			if a.Late != nil {
				is = lateAnswer + is
			}
			number := a.Fence.Round
			if a.Hang != nil {
				is, number = hangOrder(*a.Hang)
			}
			if !isAnswer || is != kind {
				continue
			}
			s.store[w.Key] = a
			label := kind
			if a.Kind == Run || a.Kind == Halt { // save, too
				label += strconv.Itoa(number)
			}
			if label != last {
				flush()
				last = label
			}
			agents = append(agents, id)
		}
		flush()
	}
	return strings.Join(out, ", ")
}

// hangOrder returns the name of an order about a hang and the number of the look.
func hangOrder(o HangOrder) (string, int) {
	switch {
	case o.Look != nil:
		return "look", o.Look.N
	case o.Act != nil:
		return "act", o.Act.N
	}
	return "hang", o.Found.Look.N
}

// writeOne stores a write other than an answer and returns it as text.
func (s *script) writeOne(w Write) string {
	if w.Value == nil {
		_, existed := s.store[w.Key]
		delete(s.store, w.Key)
		if w.Key == KeyWaiting {
			s.waiting = 0
		}
		switch {
		case existed && strings.HasPrefix(w.Key, PrefixJob):
			return "forget job"
		case existed && w.Key == KeyResult:
			return "forget result"
		case existed && strings.HasPrefix(w.Key, PrefixDeparted):
			return "forget " + strings.TrimPrefix(w.Key, PrefixState)
		}
		return ""
	}
	s.store[w.Key] = w.Value
	if n, ok := w.Value.(int); ok && w.Key == KeyWaiting {
		s.waiting = n
		return ""
	}
	switch v := w.Value.(type) {
	case Record:
		var names []string
		for _, m := range v.Members {
			names = append(names, string(m.ID))
		}
		text := fmt.Sprintf("round %d: %s (%d)", v.Round, strings.Join(names, " "), v.Restarts)
		if !w.Create {
			text += " not create-only"
		}
		return text
	case DepartedMember:
		return fmt.Sprintf("departed %d/%d", v.Round, v.Rank)
	case rdzv.Preemption:
		return "preempted"
	case FinishedRun, Successes:
		return ""
	case []PastRun:
		return fmt.Sprintf("past: %d", len(v))
	case rdzv.Outcome:
		s.resultWrite = s.rev + 1
		text := "result: " + string(v.Ending)
		if v.Rule != "" {
			text += " (" + string(v.Rule) + ")"
		}
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
	return fmt.Sprintf("unknown %T", w.Value)
}
