package rounds

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// memberStep is an event of an agent, with the orders and the report that it causes.
//
//	enter | fail | succeed | leave | close        a call of the agent
//	depart | unconfirmed                          the agent wants to leave the exit barrier; the leader has not answered
//	depart E N                                    the leader confirms that
//	lost | gone                                   the session, or the store, is lost
//	replaced                                      the next session is in another store
//	run E N | halt E N | wait E N | note E N | end | refuse | replace    the leader's answer, with epoch and round
//	proof S                                       a keep-alive sent at S was answered
//	renewed                                       a new session was requested now
//
// want has the orders, then the report if it has to be written, such as "run 0, busy 1/0". "over: ..." is the reason
// why the agent ends.
type memberStep struct {
	at   float64
	do   string
	want string
}

// playMember runs the steps on a member whose sessions live 12s. So it stops its workers after 8s of silence and they
// are dead after 10s. After a Halt they are dead within 20 - 8 - 1 = 11s.
func playMember(t *testing.T, steps []memberStep) {
	t.Helper()
	job := Job{JoinTimeout: 100 * time.Second, LastCall: time.Second, Rejoin: 20 * time.Second}
	m := NewMember(MemberOptions{Node: Node{Host: "a"}, Job: job, TTL: 12 * time.Second}, 0)
	isOver := false
	for i, st := range steps {
		now := time.Duration(st.at * float64(time.Second))
		for do := range strings.SplitSeq(st.do, ";") {
			feedMember(t, m, now, strings.Fields(do))
		}
		m.Tick(now)
		var out []string
		for _, o := range m.TakeOrders() {
			switch {
			case o.Run != nil:
				out = append(out, fmt.Sprintf("run %d", o.Run.Fence.Round))
			case o.Notice != nil:
				out = append(out, "notice "+o.Notice.Note)
			case o.Warning != "":
				out = append(out, "warning")
			case o.Reenter:
				out = append(out, "reenter")
			case o.KillIn < 0:
				out = append(out, fmt.Sprintf("stop %d", o.Stop.Round))
			default:
				out = append(out, fmt.Sprintf("stop %d in %v", o.Stop.Round, o.KillIn))
			}
		}
		if r := m.report; m.dirty {
			text := fmt.Sprintf("%s %d/%d", r.Phase, r.Fence.Epoch, r.Fence.Round)
			if r.Uptime > 0 && r.Phase != Ready {
				text += " up " + r.Uptime.String()
			}
			for _, flag := range []struct {
				is   bool
				name string
			}{{r.Silent, " silent"}, {r.Leaving, " leaving"}, {r.Close, " close"}, {r.Departing, " departing"}} {
				if flag.is {
					text += flag.name
				}
			}
			if r.Failure != nil {
				text += " failure " + strconv.Itoa(r.Failure.ExitCode)
			}
			out = append(out, text)
			m.dirty = false
		}
		if m.over != nil && !isOver {
			isOver = true
			switch {
			case m.over.Outcome != nil:
				out = append(out, "over: "+string(m.over.Outcome.Ending))
			case m.over.Departed:
				out = append(out, "over: departed "+m.over.Others)
			default:
				out = append(out, "over: "+m.over.Err.Error())
			}
		}
		if got := strings.Join(out, ", "); got != st.want {
			t.Errorf("step %d, %v, %s:\n got %q\nwant %q", i, now, st.do, got, st.want)
		}
		if wake := m.NextTick(); wake.Set && wake.At <= now {
			t.Errorf("step %d, %v, %s: wants to be woken at %v", i, now, st.do, wake.At)
		}
	}
}

// feedMember performs one event of a step.
func feedMember(t *testing.T, m *Member, now time.Duration, words []string) {
	t.Helper()
	if len(words) == 0 {
		return
	}
	var n [2]float64
	for i, word := range words[1:] {
		var err error
		if n[i], err = strconv.ParseFloat(word, 64); err != nil {
			t.Fatal(err)
		}
	}
	fence := Fence{Epoch: max(1, coord.Revision(n[0])), Round: int(n[1])}
	switch words[0] {
	case "enter":
		m.Enter(now, Node{Host: "a"}, Offer{Nonce: now.String()}, rdzv.Member{})
	case "fail":
		m.Fail(now, rdzv.Failure{Failure: failure.Failure{ExitCode: 7}})
	case "succeed":
		m.Succeed(now)
	case "depart":
		if len(words) == 1 {
			m.Depart(now)
			return
		}
		m.HandleAnswer(now, Answer{Kind: Depart, Fence: fence, Note: "so"})
	case "unconfirmed":
		m.DepartUnconfirmed()
	case "lost":
		m.SessionLost(now)
	case "gone":
		m.StoreLost(now)
	case "replaced":
		m.StoreReplaced(now)
	case "leave":
		m.Leave(now)
	case "close":
		m.Close("")
	case "run":
		m.HandleAnswer(now, Answer{Kind: Run, Fence: fence, Place: &Place{}})
	case "halt", "wait":
		m.HandleAnswer(now, Answer{Kind: AnswerKind(words[0]), Fence: fence, Note: "so"})
	case "note":
		m.HandleAnswer(now, Answer{Kind: Wait, Fence: fence, Note: "at " + now.String(), Next: time.Minute})
	case "end":
		m.HandleAnswer(now, Answer{Kind: End, Fence: Fence{Epoch: 99}, Outcome: &rdzv.Outcome{Ending: rdzv.EndFailed}})
	case "refuse", "replace":
		m.HandleAnswer(now, Answer{Kind: AnswerKind(words[0]), Fence: Fence{Epoch: 99}, Note: "so"})
	case "proof":
		m.RecordProof(now, time.Duration(n[0]*float64(time.Second)))
	case "renewed":
		m.SessionRenewed(now, 12*time.Second)
	default:
		t.Fatal(words)
	}
}

func TestMember(t *testing.T) {
	runs := []memberStep{
		{0, "enter", "ready 0/0"},
		{1, "run 1 0", "run 0, busy 1/0"},
	}
	after := func(then ...memberStep) []memberStep { return append(runs[:2:2], then...) }
	for _, c := range []struct {
		name  string
		steps []memberStep
	}{
		{"a round, a failure, the next", after(
			memberStep{2, "fail", "failing 1/0 up 1s failure 7"},
			memberStep{2.1, "halt 1 0", "stop 0 in 11s"},
			memberStep{3, "enter", "ready 1/0"},
			memberStep{3.1, "run 1 1", "run 1, busy 1/1"},
		)},
		{"another node failed", after(
			memberStep{2, "halt 1 0", "stop 0 in 11s"},
			memberStep{2.1, "fail", ""}, // a consequence: the workers are being stopped
			memberStep{3, "enter", "ready 1/0"},
		)},
		{"success", after(
			memberStep{2, "succeed", "done 1/0 up 1s"},
			memberStep{3, "end", "over: failed"},
		)},
		{"success, but others have failed", after(
			memberStep{2, "succeed", "done 1/0 up 1s"},
			memberStep{3, "halt 1 0", "stop 0 in 11s"},
			memberStep{4, "enter", "ready 1/0"},
			memberStep{5, "run 1 1", "run 1, warning, busy 1/1"},
		)},
		{"success, but others have gone on in its absence: its store is new, so it may be used", after(
			memberStep{2, "succeed", "done 1/0 up 1s"},
			memberStep{3, "renewed", "done 1/0 up 2s"},
			memberStep{4, "halt 2 3", "stop 0 in 11s"},
			memberStep{5, "enter", "ready 2/3"},
			memberStep{5.1, "halt 3 3", ""}, // another leader, which has not seen that yet
			memberStep{5.2, "run 3 4", "run 4, busy 3/4"},
		)},
		{"success comes too late", after(
			memberStep{2, "halt 1 0", "stop 0 in 11s"},
			memberStep{2.1, "succeed", ""},
			memberStep{3, "enter", "ready 1/0"},
		)},
		{"workers that had exited with 0 when the silence was noticed: it undoes nothing", after(
			memberStep{8.5, "", "stop 0 in 1.5s"},
			memberStep{8.6, "succeed; proof 8", "done 1/0 up 7.6s"},
			memberStep{9, "depart", "done 1/0 up 7.6s departing"},
			memberStep{9.1, "depart 1 0", "over: departed so"},
		)},
		{"the same, but the leader has ended the round", after(
			memberStep{8.5, "", "stop 0 in 1.5s"},
			memberStep{8.6, "halt 1 0", ""},
			memberStep{8.7, "succeed", ""},
			memberStep{9, "enter", "ready 1/0 silent"},
		)},
		{"the same, and the session is lost: it is renewed, and the leader decides", after(
			memberStep{8.5, "", "stop 0 in 1.5s"},
			memberStep{8.6, "lost", "stop 0 in 0s"},
			memberStep{8.7, "succeed", "done 1/0 up 7.7s"},
			memberStep{8.8, "renewed", "done 1/0 up 7.8s"},
			memberStep{8.9, "halt 1 0", "stop 0 in 11s"},
		)},
		{"workers that had exited with 0 when the session was lost", after(
			memberStep{2, "lost", "stop 0 in 0s"},
			memberStep{2.1, "succeed", "done 1/0 up 1.1s"},
		)},
		{"workers that had exited with 0 when the store was lost", after(
			memberStep{2, "gone", "stop 0 in 8s"},
			memberStep{2.1, "succeed", "done 1/0 up 1.1s"},
		)},
		{"a session that is lost while a failure stops the workers", after(
			memberStep{2, "fail", "failing 1/0 up 1s failure 7"},
			memberStep{2.1, "lost", "stop 0 in 0s"},
			memberStep{2.2, "succeed", ""},
		)},
		{"the same, but a worker has failed", after(
			memberStep{8.5, "", "stop 0 in 1.5s"},
			memberStep{8.6, "fail", ""},
			memberStep{8.7, "proof 8", ""},
			memberStep{9, "enter", "ready 1/0 silent"},
		)},
		{"silence: stopped at two thirds, dead by five sixths, over after the join timeout", after(
			memberStep{5, "proof 4.5", ""},
			memberStep{9.2, "", ""},
			memberStep{9.3, "", "warning"},
			memberStep{12.4, "", ""},
			memberStep{12.5, "", "stop 0 in 2s"},
			memberStep{13, "enter", "ready 1/0 silent"},
			memberStep{16.4, "", ""},
			memberStep{16.5, "", "notice the store has not answered for 12s: this node keeps trying for another 1m36s"},
			memberStep{112.4, "", ""},
			memberStep{112.5, "", "over: rendezvous backend connection: no answer for 1m48s"},
		)},
		{"the store answers again after the keep-alive time, and has kept the session", after(
			memberStep{8, "", "stop 0 in 2s"},
			memberStep{9, "enter", "ready 1/0 silent"},
			memberStep{12, "", "notice the store has not answered for 12s: this node keeps trying for another 1m36s"},
			memberStep{40, "proof 39.9", ""},
			memberStep{41, "run 1 1", "run 1, busy 1/1"},
			memberStep{47.8, "", "warning"},
			memberStep{47.9, "", "stop 1 in 2s"},
			memberStep{48, "enter", "ready 1/1 silent"},
			memberStep{52, "", "notice the store has not answered for 12.1s: this node keeps trying for another 1m36s"},
			memberStep{147.8, "", ""},
			memberStep{147.9, "", "over: rendezvous backend connection: no answer for 1m48s"},
		)},
		{"the store answers again with another session", after(
			memberStep{8, "", "stop 0 in 2s"},
			memberStep{9, "enter", "ready 1/0 silent"},
			memberStep{60, "renewed", "reenter"},
			memberStep{60.1, "enter", "ready 1/0 silent"},
			memberStep{61, "run 1 1", "run 1, busy 1/1"},
		)},
		{"an agent that stood still gets its time to join again", after(
			memberStep{1000, "", "stop 0 in 0s"},
			memberStep{1001, "enter", "notice the store has not answered for 16m41s: this node keeps trying for another 1m39s, ready 1/0 silent"},
			memberStep{1002, "renewed", "reenter"},
			memberStep{1003, "enter; run 1 1", "run 1, busy 1/1"},
		)},
		{"silence is over in time: the next round is an ordinary one", after(
			memberStep{9, "", "stop 0 in 1s"},
			memberStep{9.5, "enter", "ready 1/0 silent"},
			memberStep{10, "proof 9.9; run 1 1", "run 1, busy 1/1"},
		)},
		{"a keep-alive counts from when it was sent", after(
			memberStep{7.9, "proof 2", "warning"},
			memberStep{9.9, "", ""},
			memberStep{10, "", "stop 0 in 2s"},
		)},
		{"an answer found after the watchdog's deadline: the workers were killed for the silence", after(
			memberStep{9.9, "proof 2", "warning"},
			memberStep{10.1, "proof 8", ""},
			memberStep{18.1, "proof 12; fail", "stop 0 in 0s"},
			memberStep{18.2, "enter", "ready 1/0 silent"},
			memberStep{18.3, "run 1 1", "run 1, warning, busy 1/1"},
		)},
		{"found late: killed at once", after(
			memberStep{30, "", "stop 0 in 0s"},
			memberStep{129.9, "", ""},
			memberStep{130.0006, "", "over: rendezvous backend connection: no answer for 2m10s"},
		)},
		{"a round that is not known to be young is not begun", []memberStep{
			{0, "enter", "ready 0/0"},
			{8.5, "run 1 0", ""},
			{9, "proof 8.9", "run 0, busy 1/0"},
		}},
		{"halted before it saw the round: never in it, and its store is of no use", []memberStep{
			{0, "enter", "ready 0/0"},
			{1, "halt 1 3", "reenter"},
			{1.1, "run 1 3", ""},
			{1.2, "enter", "ready 1/3"},
			{1.3, "run 1 3", ""},
			{2, "run 1 4", "run 4, busy 1/4"},
		}},
		{"an older answer is not heard", after(
			memberStep{2, "halt 1 0", "stop 0 in 11s"},
			memberStep{3, "enter", "ready 1/0"},
			memberStep{4, "run 2 1", "run 1, busy 2/1"},
			memberStep{5, "run 1 7", "warning"},
			memberStep{6, "halt 1 1", ""},
		)},
		{"another leader confirms the round, and wants to know its age", after(
			memberStep{4, "run 2 0", "busy 2/0 up 3s"},
			memberStep{5, "halt 2 0", "stop 0 in 11s"},
			memberStep{6, "enter", "ready 2/0"},
		)},
		{"the others have begun another round", after(
			memberStep{4, "run 1 1", "stop 0"},
			memberStep{5, "enter", "run 1, warning, busy 1/1"},
		)},
		{"a wait for a later round than its own", after(
			memberStep{4, "wait 1 1", "stop 0"},
			memberStep{5, "enter", "notice so, ready 1/0"},
		)},
		{"leaving", after(
			memberStep{4, "leave", "busy 1/0 leaving"},
			memberStep{4.1, "halt 1 0", "stop 0 in 11s"},
		)},
		{"closing", after(memberStep{4, "close", "busy 1/0 close"})},
		{"the job ends under running workers", after(memberStep{4, "end", "stop 0, over: failed"})},
		{"refused", []memberStep{
			{0, "enter", "ready 0/0"},
			{1, "refuse", "over: the job refuses this node: so"},
		}},
		{"replaced", after(memberStep{4, "replace", "stop 0 in 0s, over: rendezvous backend connection: so"})},
		{"another session begins without a round", after(
			memberStep{4, "halt 1 0", "stop 0 in 11s"},
			memberStep{5, "enter", "ready 1/0"},
			memberStep{6, "renewed", "reenter"},
			memberStep{6.1, "run 1 1", ""},
			memberStep{6.2, "enter", "run 1, busy 1/1"},
			memberStep{14, "", "stop 1 in 2s"},
		)},
		{"nobody leads: it does not wait for ever", []memberStep{
			{0, "enter", "ready 0/0"},
			{150, "proof 150", ""},
			{151, "", "over: rendezvous timed out: no round in 2m31s"},
		}},
		{"a wait without a limit", []memberStep{
			{0, "enter", "ready 0/0"},
			{1, "wait 1 0", "notice so"},
			{2, "wait 1 0", ""},
			{999, "proof 991; run 1 1", ""}, // it cannot start the round yet
			{1000, "proof 999", "run 1, busy 1/1"},
		}},
		{"a wait with a limit", []memberStep{
			{0, "enter", "ready 0/0"},
			{5, "note 1 0", "notice at 5s"},
			{15, "proof 15; note 1 0", "notice at 15s"},
			{225.9, "proof 225", ""}, // the note at 15 s announced another one in 60 s; 151 s after that the wait ends
			{226, "", "over: rendezvous timed out: no round in 2m31s"},
		}},
		{"a note that it has heard before is said again of another round", after(
			memberStep{4, "halt 1 0", "stop 0 in 11s"},
			memberStep{5, "enter", "ready 1/0"},
			memberStep{6, "wait 1 0", "notice so"},
			memberStep{7, "proof 7; run 1 1", "run 1, busy 1/1"},
			memberStep{8, "halt 1 1", "stop 1 in 11s"},
			memberStep{9, "enter; wait 1 1", "notice so, ready 1/1"},
		)},
	} {
		t.Run(c.name, func(t *testing.T) { playMember(t, c.steps) })
	}
}

func TestRefusedError(t *testing.T) {
	if err := error(&RefusedError{Why: "so"}); !errors.Is(err, rdzv.ErrRendezvous) {
		t.Errorf("%v is no %v", err, rdzv.ErrRendezvous)
	}
}
