package rounds

import (
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Hangs configures the search for hangs and the reaction to them. The zero value disables the search.
type Hangs struct {
	// Auto derives the time without progress after which a hang is suspected from the pauses of the job. Timeout is that
	// time if the user has given one.
	Auto    bool          `json:"auto,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	Action  HangAction    `json:"action,omitempty"` // the zero value is HangReport
}

// HangAction is what follows a hang that was found.
type HangAction string

// The values of --hang-action.
const (
	HangReport  HangAction = "report"  // it is reported, and the job goes on
	HangRestart HangAction = "restart" // the round fails, and is restarted within the budget
	HangStop    HangAction = "stop"    // the job fails
)

// off says that the job looks for no hang.
func (h Hangs) off() bool { return !h.Auto && h.Timeout == 0 }

// acts says that a hang ends the round.
func (h Hangs) acts() bool { return h.Action == HangRestart || h.Action == HangStop }

func (h Hangs) timeoutText() string {
	switch {
	case h.Auto:
		return "auto"
	case h.Timeout == 0:
		return "off"
	}
	return seconds.Format(h.Timeout)
}

// HangLook names one look at all workers of a round, which the leader orders.
type HangLook struct {
	Fence
	N int `json:"look"` // counts the looks of that leader in that round, from 1
}

// HangOrder is what the leader asks of an agent about a suspected hang. One of the fields is set.
type HangOrder struct {
	// Look asks the agent to look at all workers of the job and to report a HangFinding.
	Look *HangLook `json:"look,omitempty"`
	// Act asks the agent that has reported this finding to fail the round with its failure.
	Act *HangLook `json:"act,omitempty"`
	// Found informs another agent of the finding.
	Found *HangFound `json:"found,omitempty"`
}

// HangFinding is what an agent has found when it looked at all workers of the job.
type HangFinding struct {
	Look HangLook `json:"look"`
	// Hang says that the job hangs, as far as can be seen from outside.
	Hang bool `json:"hang,omitempty"`
	// Proof says that no worker can go on by itself: all are blocked or stopped, or have ended, and were so before.
	Proof bool `json:"proof,omitempty"`
	// Still says that this agent has found the workers in the same places before, and that none has written anything
	// since.
	Still bool `json:"still,omitempty"`
	// AtWork says that a process that a worker has started uses CPU time: the worker may only wait for it.
	AtWork bool `json:"at_work,omitempty"`
	// Complete says that every node has replied, and the state of every worker is known.
	Complete bool `json:"complete,omitempty"`
	// Quiet is how long ago the last sign of life of any worker was.
	Quiet time.Duration `json:"quiet,omitempty"`
	// SinceOutput is how long ago a worker has written its last output, whether it was a sign of life or not.
	SinceOutput time.Duration `json:"since_output,omitempty"`
	// Summary is the finding in one line. Ranks are the workers that are the likeliest reason.
	Summary string `json:"summary,omitempty"`
	Ranks   []int  `json:"ranks,omitempty"`
	// Failure is the failure of the worker that is the likeliest reason, as it is reported if the round is ended.
	Failure *rdzv.Failure `json:"failure,omitempty"`
}

// HangFound is what other nodes learn of a hang.
type HangFound struct {
	Look    HangLook      `json:"look"`
	Host    string        `json:"host"` // the node that has looked, and has the stacks
	Summary string        `json:"summary"`
	Ranks   []int         `json:"ranks,omitempty"`
	Quiet   time.Duration `json:"quiet"`
}

// NodeStacks is what one node has replied to a look at its workers.
type NodeStacks struct {
	Rank   int    // of the node
	Host   string // empty if it is not known
	Stacks []byte // Options.Stacks of its agent; nil if it has not replied
	// Gone says that the node's agent has ended after its workers had exited with 0.
	Gone bool

	Own bool // it is the node that looks
}

// StacksRequest says what Options.Stacks returns.
type StacksRequest struct {
	// AllThreads asks for all threads instead of the main ones.
	AllThreads bool `json:"all_threads,omitempty"`
	// Look asks to watch the workers for about a second, to see which of them move.
	Look bool `json:"look,omitempty"`
}

// RecordQuiet records that no worker of the node has shown progress for long, or with nil that one has again.
func (m *Member) RecordQuiet(now time.Duration, q *rdzv.Quiet) {
	if m.state != busy || q == nil && m.report.Quiet == nil {
		return
	}
	if m.report.Quiet, m.dirty = q, true; q != nil {
		m.report.quietSince = now - q.For
		return
	}
	if m.shownHang != (HangLook{}) || m.report.Hang != nil && m.report.Hang.Hang {
		m.shownHang, m.report.Hang = HangLook{}, nil
		m.orders = append(m.orders, Order{HangOver: true})
	}
}

// handleHang follows an order about a hang. An order arrives more than once.
func (m *Member) handleHang(now time.Duration, o HangOrder) {
	switch {
	case m.state != busy:
	case o.Look != nil && *o.Look != m.looked:
		m.looked = *o.Look
		m.orders = append(m.orders, Order{Look: o.Look})
	case o.Found != nil && o.Found.Look != m.shownHang:
		m.shownHang = o.Found.Look
		m.orders = append(m.orders, Order{Hang: o.Found})
	case o.Act != nil:
		m.failForHang(now, *o.Act)
	}
}

// RecordFinding records what this agent has found.
func (m *Member) RecordFinding(f HangFinding) {
	if m.state == busy && f.Look == m.looked {
		m.report.Hang, m.dirty = &f, true
	}
}

// failForHang fails the round because of a hang that this agent has found. The failure stays the node's likeliest one:
// later failures of its workers follow from the stop.
func (m *Member) failForHang(now time.Duration, look HangLook) {
	f := m.report.Hang
	if f == nil || f.Look != look || f.Failure == nil {
		return
	}
	m.hang, m.report.Failure, m.report.failedAt = f.Failure, f.Failure, now-f.Failure.Age
	m.ranUntil(now - f.Failure.Age)
	m.stop(now, f.Summary, -1)
	m.record(now, Failing)
}

// forgetHang forgets a hang of the last round.
func (m *Member) forgetHang() {
	m.hang, m.report.Quiet, m.report.Hang = nil, nil, nil
	m.looked, m.shownHang = HangLook{}, HangLook{}
}
