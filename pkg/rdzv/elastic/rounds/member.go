package rounds

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Member is the state machine of one agent. It has no clock, network or goroutine. Its inputs are the agent's calls,
// the leader's answers and the time; its outputs are the report to write to the store and orders for the agent. Times
// are monotonic and have any origin.
//
//	outside ─enter─▶ ready ─Run─▶ busy ─succeed─▶ finished        stopping or finished, once stopped ─enter─▶ ready
//	                               └──fail or stop──▶ stopping
//
// Only the leader's answers stop a round that has finished on this node: its workers are gone, so neither a silent
// store nor a lost session endangers another round.
type Member struct {
	ttl         time.Duration // of the session; 0 if it does not expire
	state       memberState
	fence       Fence // of the last round that the agent was in or could not enter; Epoch 0 before the first
	latest      Answer
	answeredAt  time.Duration // when latest arrived
	report      Report
	dirty       bool          // report has changed and must be written
	entered     int           // number of the last round that it was in
	since       time.Duration // when its round, or its wait for one, began
	began       time.Duration // when it entered its last round
	books       ledger        // as of began, as far as this agent knows; with its own marks
	workerCount int           // of that round, on all nodes; 0 before the first
	// outsideSince is when this agent learned that the others are in a later round, whose progress it does not see.
	outsideSince OptionalTime
	stopOrdered  bool          // the agent has been ordered to stop the round
	silenceStop  bool          // stopOrdered only because this agent does not hear from the leader
	killAt       OptionalTime  // when the workers must be dead
	workersGone  bool          // every worker of the round has ended
	nodes        int           // number of nodes of the round
	rank         int           // of this node in the round
	lastProof    time.Duration // when the last answered keep-alive was sent
	over         *Ending       // nil while the agent takes part

	silentSince  OptionalTime // since when the agent has known that the store does not answer
	silenceNoted bool         // the notice about that has been ordered
	quietNoted   bool         // the warning about a store that has begun to be silent has been ordered

	looked, shownHang HangLook      // the last orders about a hang
	hang              *rdzv.Failure // why this agent has failed the round, if that is a hang

	preemptedRound int // number of the last round whose workers were to save, plus 1; 0 for none

	lastNote string // of the last notice
	orders   []Order
}

// memberState is the state of an agent and its workers.
type memberState int

const (
	outside  memberState = iota // the agent has not entered yet
	ready                       // the agent has no workers and waits for a round
	busy                        // the workers run
	stopping                    // the agent stops the workers: one has failed, or the round ends
	finished                    // all workers have exited with 0: the agent waits at the exit barrier
)

// MemberOptions are the options of NewMember.
type MemberOptions struct {
	Node Node
	Job  Job
	TTL  time.Duration
}

// NewMember returns the member of an agent that has a session. now is when the session was known to be alive.
func NewMember(o MemberOptions, now time.Duration) *Member {
	return &Member{ttl: o.TTL, lastProof: now, report: Report{Node: o.Node, Job: o.Job}}
}

// Round returns the number of the last round that the agent was in or could not enter, or -1.
func (m *Member) Round() int {
	if m.fence.Epoch == 0 {
		return -1
	}
	return m.fence.Round
}

// Enter records that every worker has ended and that the agent wants to be in the next round. self describes the
// agent's last round.
func (m *Member) Enter(now time.Duration, node Node, offer Offer, self rdzv.Member) {
	m.report.Node, m.report.Store, m.report.Departing = node, offer, false
	m.report.Quiet = nil
	if a := m.latest; a.Kind == Halt && a.Fence.Round > m.Round() { // a round that ended before anybody knew this offer
		m.fence, m.report.Unreached = a.Fence, nil
	}
	m.recordEnd(now, self)
	m.record(now, Ready)
	if m.state != ready {
		m.state, m.since = ready, now
	}
	m.evaluate(now)
}

// Fail records that a worker has failed. Others may still run.
func (m *Member) Fail(now time.Duration, f rdzv.Failure) {
	if m.state != busy {
		return
	}
	m.state, m.report.Failure, m.report.failedAt = stopping, &f, now-f.Age
	m.ranUntil(now - f.Age)
	m.report.Silent = m.report.Silent || m.IsSilent(now) // this process was paused, and its workers were killed for that
	m.record(now, Failing)
	m.evaluate(now)
}

// Succeed records that all workers have exited with 0. It reports whether the success counts. It does not if the round
// had failed here, or had been stopped for a reason other than the store's silence or the loss of the session. A Stop
// for one of those two reasons becomes void. The session may have outlasted the silence, for example because this
// process was paused.
func (m *Member) Succeed(now time.Duration) bool {
	if m.state != busy && !m.silenceStop || m.stopOrdered && !m.silenceStop {
		return false // the round has failed already
	}
	m.state, m.stopOrdered, m.silenceStop, m.report.Silent, m.killAt = finished, false, false, false, OptionalTime{}
	m.report.Ran = nil // a Stop may have been void
	m.ranUntil(now)
	m.record(now, Done)
	m.evaluate(now)
	return true
}

// Depart asks the leader to let the agent leave the exit barrier. An answer that ends the round or the job wins. If the
// store is silent, the agent leaves at once.
func (m *Member) Depart(now time.Duration) {
	switch {
	case !m.MayDepart():
	case m.IsSilent(now):
		m.DepartUnconfirmed()
	default:
		m.report.Departing, m.dirty = true, true
	}
}

// DepartUnconfirmed leaves the exit barrier although the leader has not answered.
func (m *Member) DepartUnconfirmed() {
	if m.MayDepart() {
		m.over = &Ending{Departed: true}
	}
}

// MayDepart reports whether the agent waits at the exit barrier.
func (m *Member) MayDepart() bool { return m.state == finished && !m.stopOrdered && m.over == nil }

// Stopped records that every worker of the round has ended.
func (m *Member) Stopped() { m.workersGone = m.state != ready && m.state != outside }

// HasWorkers reports whether workers may be alive.
func (m *Member) HasWorkers() bool {
	return (m.state == busy || m.state == stopping) && !m.workersGone
}

// setStuck records whether the agent fails to receive Stops and probes while its workers should run.
func (m *Member) setStuck(stuck bool) {
	if m.state == busy && m.report.Stuck != stuck {
		m.report.Stuck, m.dirty = stuck, true
	}
}

// Close asks the leader to close the run. The first request stands.
func (m *Member) Close(by string) {
	if !m.report.Close {
		m.report.Close, m.report.CloseBy, m.dirty = true, by, true
	}
}

// HandleAnswer acts on an answer of the leader, unless the answer is older than the last one.
func (m *Member) HandleAnswer(now time.Duration, a Answer) {
	if a.Fence.before(m.latest.Fence) || a.Fence.before(m.fence) {
		return
	}
	m.latest, m.answeredAt = a, now
	m.evaluate(now)
}

// TakeReport returns the report, and whether it has changed since the last call.
func (m *Member) TakeReport() (r Report, changed bool) {
	changed, m.dirty = m.dirty, false
	return m.report, changed
}

// RecordProof records that the store has answered a keep-alive sent at sent. The caller calls Tick next. An answer that
// comes to light only after the watchdog's deadline, because this process was paused, is too late: the watchdog has
// killed the workers, which does not count as their failure.
func (m *Member) RecordProof(now, sent time.Duration) {
	if m.ttl > 0 && now >= m.lastProof+deadAfter(m.ttl) {
		m.stopIfSilent(now)
	}
	m.lastProof = max(m.lastProof, sent)
}

// SessionRenewed starts a new session, requested at now, after the store has ended the one before. Every worker must
// have ended. The agent has to enter again: the earlier session may be in a round by now, whose nodes have used its
// worker store. At the exit barrier it only reports again that its workers have succeeded.
func (m *Member) SessionRenewed(now time.Duration, ttl time.Duration) {
	m.ttl, m.lastProof, m.latest, m.dirty = ttl, now, Answer{}, false
	m.silentSince, m.silenceNoted = OptionalTime{}, false
	if m.MayDepart() {
		m.record(now, Done)
		return
	}
	m.state = outside
	m.orders = append(m.orders, Order{Reenter: true})
}

// SessionLost records that the store has ended the session: others may consider this agent lost, and workers must be
// dead at once.
func (m *Member) SessionLost(now time.Duration) {
	m.stopUnanswered(now, "the rendezvous considers this node lost", 0)
}

// StoreLost records that the store is gone for good. The workers may stop gracefully until others may consider this
// agent lost.
func (m *Member) StoreLost(now time.Duration) {
	m.stopUnanswered(now, "the rendezvous is lost", max(0, m.lastProof+deadAfter(m.ttl)-now))
}

// stopUnanswered stops the workers because this agent does not hear from the leader any more. Workers that have all
// exited with 0 before it have succeeded, although the agent, which may have been paused, has not reported that yet.
func (m *Member) stopUnanswered(now time.Duration, why string, killIn time.Duration) {
	if m.state == finished {
		return
	}
	m.silenceStop = m.silenceStop || m.state == busy // else something else stops the workers already
	m.orderStop(now, why, killIn)
}

// stopWorkers is stop, unless this node has finished the round: at the exit barrier it has no workers.
func (m *Member) stopWorkers(now time.Duration, why string, killIn time.Duration) {
	if m.state != finished {
		m.stop(now, why, killIn)
	}
}

// Tick acts on the passing of time. It stops the workers early enough that they have ended before others may consider
// this agent lost.
func (m *Member) Tick(now time.Duration) {
	m.stopIfSilent(now)
	if m.state == ready && m.latest.Kind == Run {
		m.evaluate(now)
	}
	m.checkQuiet(now)
	m.checkStore(now)
	if by := m.waitDeadline(); by.Set && now >= by.At {
		m.over = &Ending{Err: fmt.Errorf("%w: no round in %s", rdzv.ErrTimeout, seconds.Format(m.waitTimeout()))}
	}
}

// evaluate acts on the leader's last answer in the current state.
func (m *Member) evaluate(now time.Duration) {
	a := m.latest
	newer := a.Fence.Round > m.Round()
	switch a.Kind {
	case End:
		m.over = &Ending{Outcome: a.Outcome, Late: a.Late}
		m.stopWorkers(now, endText(a.Outcome), -1)
		m.endSaving(a.Outcome)
	case Refuse:
		m.over = &Ending{Err: refusal(a)}
		m.stopWorkers(now, a.Note, -1)
	case Replace:
		m.over = &Ending{Err: fmt.Errorf("%w: %s", rdzv.ErrConnection, a.Note), Replaced: true}
		m.stopWorkers(now, a.Note, 0)
	case Depart:
		if m.MayDepart() && m.report.Departing && a.Fence.Round == m.fence.Round {
			m.over = &Ending{Departed: true, Others: a.Note}
		}
	case Run:
		switch {
		case newer && a.Place == nil: // it is about another agent's round
		case newer && m.state == ready && m.IsSilent(now): // it would have to stop at once; Tick calls evaluate again
		case newer && m.state == ready:
			m.start(now, a)
		case newer && m.state != outside:
			m.stop(now, "the others have begun another round", -1)
		case m.fence.Round == a.Fence.Round && m.state != ready:
			if a.Hang == nil || m.fence != a.Fence { // a new leader confirms the round and needs its age
				m.fence = a.Fence
				if m.state == busy {
					m.record(now, Busy)
				}
			}
			if a.Hang != nil {
				m.handleHang(now, *a.Hang)
			}
		}
	case Halt:
		switch {
		case newer && m.state == ready: // it cannot enter that round, whose nodes may have used its worker store
			m.fence, m.state, m.report.Unreached = a.Fence, outside, nil
			m.orders = append(m.orders, Order{Reenter: true})
		case m.state != ready && m.state != outside && a.Preemption != nil:
			m.save(now, a)
		case m.state != ready && m.state != outside:
			m.stop(now, a.Note, m.haltBound())
		}
	case Wait:
		if newer && (m.state == busy || m.state == finished) {
			m.stop(now, a.Note, -1)
		}
		if a.Fence.Round > m.entered {
			m.outsideSince.setOnce(now)
		}
		if m.state != ready {
			return
		}
		if a.JoinStore && m.report.StoreMember == "" {
			m.orders = append(m.orders, Order{Join: true})
		}
		if a.Note != m.lastNote {
			m.lastNote = a.Note
			m.orders = append(m.orders, Order{Notice: &a})
		}
	}
}

// start starts a round.
func (m *Member) start(now time.Duration, a Answer) {
	m.state, m.since, m.fence, m.stopOrdered, m.killAt = busy, now, a.Fence, false, OptionalTime{}
	m.entered = a.Fence.Round
	m.lastNote, m.workersGone, m.silenceStop = "", false, false
	m.report.Silent, m.report.Failure, m.report.Unreached, m.report.Stuck = false, nil, nil, false
	m.report.Finished, m.report.Stop, m.report.ExcludeNode = false, false, false
	m.beginBooks(now, a.Place)
	m.forgetHang()
	m.nodes, m.rank = a.Place.Nodes, a.Place.Rank
	m.record(now, Busy)
	m.orders = append(m.orders, Order{Run: &a})
}

// stop orders the agent to stop its workers, which it may be doing already. killIn is the time until the last worker
// must be dead: 0 for at once, -1 for the grace period. stop orders once a round, and again if killIn leaves less time
// than the order before.
func (m *Member) stop(now time.Duration, why string, killIn time.Duration) {
	m.silenceStop = false
	m.orderStop(now, why, killIn)
}

// orderStop is stop for a caller that has set silenceStop.
func (m *Member) orderStop(now time.Duration, why string, killIn time.Duration) {
	sooner := killIn >= 0 && (!m.killAt.Set || now+killIn < m.killAt.At)
	if m.state == ready || m.state == outside || !sooner && (m.stopOrdered || m.state == stopping) {
		return
	}
	m.stopOrdered = true
	if sooner {
		m.killAt = OptionalTime{now + killIn, true}
	}
	if m.state == busy {
		m.state = stopping
		m.ranUntil(now)
	}
	m.orders = append(m.orders, Order{KillIn: killIn, Stop: &rdzv.Stop{
		Round: m.entered, Why: why, Final: m.over != nil, Silence: m.silenceStop,
	}})
}

// record changes the report's phase.
func (m *Member) record(now time.Duration, p Phase) {
	m.report.Phase, m.report.Fence, m.dirty = p, m.fence, true
	m.report.Uptime = 0
	if m.state != ready && m.state != outside {
		m.report.Uptime = now - m.since
	}
}

// TakeOrders returns the orders given since the last call.
func (m *Member) TakeOrders() []Order {
	orders := m.orders
	m.orders = nil
	return orders
}
