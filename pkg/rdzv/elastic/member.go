package elastic

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// member is one agent's side of the rendezvous. It is pure: what the agent and the store say goes in, and the time; the report that
// the store should have and the orders for the agent come out. Times are monotonic, from any origin.
//
//	outside ─enter─▶ ready ─Run─▶ busy ─done─▶ finished        ready ◀─enter─ any that was told to stop
//	                               └──fail──▶ stopping
type member struct {
	ttl         time.Duration // of the session; 0: it lives as long as this process
	state       memberState
	fence       Fence // of the last round it was in, or was kept from; Epoch 0 before the first
	latest      Answer
	answeredAt  time.Duration // when that was
	report      Report
	dirty       bool          // the report was changed and is to be written
	since       time.Duration // of the round it is in, or of its wait for one
	stopOrdered bool          // to stop the round it is in
	killAt      optionalTime  // by when they must be dead
	workersGone bool          // no worker of the round it is in is left
	nodes       int           // of that round
	lastProof   time.Duration
	over        *ending

	silentSince  optionalTime // since when the agent knows that the store is silent
	silenceNoted bool         // the agent was told that it waits for the store

	lastNote string // what the agent was told last of its wait
	orders   []order
}

// memberState is what the agent's workers are doing.
type memberState int

const (
	outside  memberState = iota // the agent has not asked for a round yet
	ready                       // no workers, in line for the next round
	busy                        // workers run
	stopping                    // workers are being stopped: one has failed, or all were told to
	finished                    // all workers exited with 0
)

// ending is why the agent is to leave the rendezvous for good.
type ending struct {
	outcome *rdzv.Outcome // the job has ended
	late    *rdzv.Late    // with outcome: before this agent came
	err     error         // or this agent cannot take part
}

// order is what the agent is to do.
type order struct {
	run     *Answer    // start the round
	notice  *Answer    // tell people why there is no round yet
	reenter bool       // enter again, with a new offer: what was offered before was in use
	stop    *rdzv.Stop // stop the workers; KillBy is not set
	// killIn is how long from now SIGKILL must have ended the last of them at the latest; 0 is at once, below 0 leaves it to the grace.
	killIn time.Duration
}

// memberOptions are what does not change in an agent's life.
type memberOptions struct {
	node Node
	job  Job
	ttl  time.Duration
}

func newMember(o memberOptions, now time.Duration) *member {
	return &member{ttl: o.ttl, lastProof: now, report: Report{Node: o.node, Job: o.job}}
}

// round is the number of the last round that the agent was in, or was kept from; -1 for none.
func (m *member) round() int {
	if m.fence.Epoch == 0 {
		return -1
	}
	return m.fence.Round
}

// enter tells that no worker is left and the agent wants to be in the next round; failure is the likeliest cause among its own in the last
// one, nil for none.
func (m *member) enter(now time.Duration, node Node, offer Offer, failure *rdzv.Failure) {
	m.report.Node, m.report.Store, m.report.Failure = node, offer, failure
	if failure != nil {
		m.report.failedAt = now - failure.Age
	}
	m.record(now, Ready)
	if m.state != ready {
		m.state, m.since = ready, now
	}
	m.evaluate(now)
}

// fail tells that a worker has failed, while others may still run.
func (m *member) fail(now time.Duration, f rdzv.Failure) {
	if m.state != busy {
		return
	}
	m.state, m.report.Failure, m.report.failedAt = stopping, &f, now-f.Age
	m.report.Silent = m.report.Silent || m.silent(now) // this agent stood still, and its workers were killed for that
	m.record(now, Failing)
	m.evaluate(now)
}

// succeed tells that all workers have exited with 0.
func (m *member) succeed(now time.Duration) {
	if m.state != busy || m.stopOrdered {
		return // the round is lost already
	}
	m.state = finished
	m.record(now, Done)
	m.evaluate(now)
}

// stopped tells that no worker of the round is left.
func (m *member) stopped() { m.workersGone = m.state != ready && m.state != outside }

// workers reports whether workers may be alive.
func (m *member) workers() bool { return (m.state == busy || m.state == stopping) && !m.workersGone }

// unresponsive tells whether the agent, while its workers should be running, takes nothing that it is sent.
func (m *member) setStuck(is bool) {
	if m.state == busy && m.report.Stuck != is {
		m.report.Stuck, m.dirty = is, true
	}
}

// leave tells that the agent is about to stop its workers and go.
func (m *member) leave() {
	m.report.Leaving, m.dirty = true, true
}

// close asks for the end of the run.
func (m *member) close() {
	m.report.Close, m.dirty = true, true
}

// answered takes note of what the leader says. Of an older decision than the last one nothing is heard.
func (m *member) handleAnswer(now time.Duration, a Answer) {
	if a.Fence.before(m.latest.Fence) || a.Fence.before(m.fence) {
		return
	}
	m.latest, m.answeredAt = a, now
	m.evaluate(now)
}

// proved takes note that the store has answered a keep-alive that was sent then. tick is to follow.
func (m *member) recordProof(sent time.Duration) { m.lastProof = max(m.lastProof, sent) }

// renewed begins a new session, after the store has ended the one before. No worker may be left. now is when the session was asked for. The agent
// has to enter again: the one before may have been in a round by now, in which others have used its store.
func (m *member) sessionRenewed(now time.Duration, ttl time.Duration) {
	m.ttl, m.lastProof, m.latest, m.dirty = ttl, now, Answer{}, false
	m.silentSince, m.silenceNoted = optionalTime{}, false
	m.state = outside
	m.orders = append(m.orders, order{reenter: true})
}

// abandoned takes note that the store is gone for good. Until others can have taken this agent for lost its workers may end in order.
func (m *member) storeLost(now time.Duration) {
	m.stop(now, "the rendezvous is lost", max(0, m.lastProof+killTimeout(m.ttl)-now))
}

// tick does what time alone asks for: the workers must have ended before anybody may take this agent for lost.
func (m *member) tick(now time.Duration) {
	if m.workers() && m.silent(now) {
		m.report.Silent = true
		m.stop(now, fmt.Sprintf("the rendezvous has not answered for %v", printed(now-m.lastProof)), max(0, m.lastProof+killTimeout(m.ttl)-now))
	}
	if m.state == ready && m.latest.Kind == Run {
		m.evaluate(now)
	}
	m.checkStore(now)
	if by := m.waitDeadline(); by.set && now >= by.at {
		m.over = &ending{err: fmt.Errorf("%w: no round in %v", rdzv.ErrTimeout, m.waitTimeout())}
	}
}

// silent reports whether the store has not answered for so long that no workers may run.
func (m *member) silent(now time.Duration) bool {
	return m.ttl > 0 && now >= m.lastProof+stopTimeout(m.ttl)
}

// unheard is until when the agent stays in line; not set where it is in none, or was told to wait there for as long as it takes.
func (m *member) waitDeadline() optionalTime {
	since := m.since
	switch {
	case m.state != ready || m.over != nil:
		return optionalTime{}
	case m.latest.Kind == Wait && m.latest.Next == 0, m.latest.Kind == Run && m.latest.Fence.Round > m.round():
		return optionalTime{}
	case m.latest.Kind == Wait:
		since = max(since, m.answeredAt+m.latest.Next)
	}
	return optionalTime{since + m.waitTimeout(), true}
}

// patience is how long the agent waits for a round where nobody leads. A leader is done with its own waits before.
func (m *member) waitTimeout() time.Duration {
	return m.report.Job.JoinTimeout + m.report.Job.LastCall + m.report.Job.Rejoin + maxBackoff
}

// silence is how long a store may say nothing before the workers are stopped, lastMoment when the last of them is dead: both well within
// the time after which others take the agent for lost.
func stopTimeout(ttl time.Duration) time.Duration { return ttl * 2 / 3 }
func killTimeout(ttl time.Duration) time.Duration { return ttl * 5 / 6 }

// deadline is when somebody else has to kill the workers, because others may take this agent for lost by then, or because the agent
// was told when to have killed them and is late; not set where there are none, or no such time.
func (m *member) deadline() (by optionalTime) {
	if !m.workers() {
		return by
	}
	if m.ttl > 0 {
		by = optionalTime{m.lastProof + killTimeout(m.ttl), true}
	}
	if late := m.killAt.at + m.killMargin(); m.killAt.set && (!by.set || late < by.at) {
		by = optionalTime{late, true}
	}
	return by
}

// killMargin is how long after the time that it was told the agent may take to kill its workers. haltBound leaves twice as long.
func (m *member) killMargin() time.Duration { return m.report.Job.Rejoin / 40 }

// wake is when tick has something to do.
func (m *member) nextTick() (next optionalTime) {
	first := func(at time.Duration) {
		if !next.set || at < next.at {
			next = optionalTime{at, true}
		}
	}
	if m.workers() && m.ttl > 0 && !m.report.Silent {
		first(m.lastProof + stopTimeout(m.ttl))
	}
	if at := m.nextStoreCheck(); at.set {
		first(at.at)
	}
	if by := m.waitDeadline(); by.set {
		first(by.at)
	}
	return next
}

// evaluate does what the leader's last answer asks for in the state that the agent is in now.
func (m *member) evaluate(now time.Duration) {
	a := m.latest
	newer := a.Fence.Round > m.round()
	switch a.Kind {
	case End:
		if m.over = (&ending{outcome: a.Outcome, late: a.Late}); m.state != finished {
			m.stop(now, "the job has ended", -1)
		}
	case Refuse:
		m.over = &ending{err: refusal(a)}
		m.stop(now, a.Note, -1)
	case Replace:
		m.over = &ending{err: fmt.Errorf("%w: %s", rdzv.ErrConnection, a.Note)}
		m.stop(now, a.Note, 0)
	case Run:
		switch {
		case newer && m.state == ready && m.silent(now): // it would have to stop at once; tick looks again
		case newer && m.state == ready:
			m.start(now, a)
		case newer && m.state != outside:
			m.stop(now, "the others have begun another round", -1)
		case m.fence.Round == a.Fence.Round && m.state != ready:
			if m.fence = a.Fence; m.state == busy { // a new leader confirms the round, and wants to know its age
				m.record(now, Busy)
			}
		}
	case Halt:
		switch {
		case newer && m.state == ready: // it will never be in that round; others may have been, and used its store
			m.fence, m.state, m.report.Unreached = a.Fence, outside, nil
			m.orders = append(m.orders, order{reenter: true})
		case m.state != ready && m.state != outside:
			m.stop(now, a.Note, m.haltBound())
		}
	case Wait:
		if newer && (m.state == busy || m.state == finished) {
			m.stop(now, a.Note, -1)
		}
		if m.state == ready && a.Note != m.lastNote {
			m.lastNote = a.Note
			m.orders = append(m.orders, order{notice: &a})
		}
	}
}

// start begins a round.
func (m *member) start(now time.Duration, a Answer) {
	m.state, m.since, m.fence, m.stopOrdered, m.killAt = busy, now, a.Fence, false, optionalTime{}
	m.report.Silent, m.report.Failure, m.report.Unreached, m.lastNote, m.workersGone, m.report.Stuck = false, nil, nil, "", false, false
	m.nodes = a.Place.Nodes
	m.record(now, Busy)
	m.orders = append(m.orders, order{run: &a})
}

// stop orders the agent to stop its workers, which it may be doing already: once a round, and again when there is less time than was said.
func (m *member) stop(now time.Duration, why string, killIn time.Duration) {
	sooner := killIn >= 0 && (!m.killAt.set || now+killIn < m.killAt.at)
	if m.state == ready || m.state == outside || !sooner && (m.stopOrdered || m.state == stopping) {
		return
	}
	m.stopOrdered = true
	if sooner {
		m.killAt = optionalTime{now + killIn, true}
	}
	if m.state == busy {
		m.state = stopping
	}
	m.orders = append(m.orders, order{stop: &rdzv.Stop{Round: m.fence.Round, Why: why}, killIn: killIn})
}

// tell changes the report.
func (m *member) record(now time.Duration, p Phase) {
	m.report.Phase, m.report.Fence, m.dirty = p, m.fence, true
	if m.report.Uptime = 0; m.state != ready && m.state != outside {
		m.report.Uptime = now - m.since
	}
}

// haltBound is how long workers may take to stop when all are told to, so that none is left when the others go on without this node. What is
// told may have taken the time of a silence to arrive.
func (m *member) haltBound() time.Duration {
	return max(0, m.report.Job.Rejoin-stopTimeout(m.ttl)-m.report.Job.Rejoin/20)
}

// take returns the orders that were given since it was called last.
func (m *member) takeOrders() []order {
	orders := m.orders
	m.orders = nil
	return orders
}

// refusal is the error of an agent that was refused.
func refusal(a Answer) error {
	if a.Late != nil && a.Outcome != nil {
		return &FinishedError{Ending: a.Outcome.Ending, Late: *a.Late}
	}
	return &RefusedError{Why: a.Note}
}

// RefusedError says that the agent does not fit the job that has the run id.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "the job refuses this node: " + e.Why }

// Unwrap makes it an rdzv.ErrRendezvous.
func (e *RefusedError) Unwrap() error { return rdzv.ErrRendezvous }
