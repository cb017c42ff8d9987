package agent

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// history keeps the last rounds for the report. A round is open from begin until the first end.
type history struct {
	rounds []report.Round
	count  int // of all rounds
}

// maxPastText is how much text of a failure is kept for each round, in bytes.
const maxPastText = 8 << 10

func (h *history) begin(r *rdzv.Round, now time.Time) {
	h.count++
	h.rounds = append(h.rounds, report.Round{
		Number: r.Number, Restarts: r.Restarts, Nodes: r.WorldSize, NodeRank: r.Rank, Workers: r.Assignment.GlobalWorldSize,
		Started: report.Time{Time: now},
	})
	h.rounds = h.rounds[max(0, len(h.rounds)-report.MaxRounds):]
}

// last returns the current round; nil before the first.
func (h *history) last() *report.Round {
	if len(h.rounds) == 0 {
		return nil
	}
	return &h.rounds[len(h.rounds)-1]
}

// logDir sets the log folder of the current round.
func (h *history) logDir(path string) { h.last().LogDir = path }

// end closes the current round, if it is open. f is this node's likeliest failure, or nil.
func (h *history) end(how, why string, f *failure.Failure) {
	r := h.last()
	if r == nil || !r.Ended.IsZero() {
		return
	}
	r.Ended, r.End, r.Why = report.Time{Time: time.Now()}, how, why
	if f != nil {
		view := reported(*f)
		view.Text = report.Tail(view.Text, maxPastText)
		r.Failure = &view
	}
}

// startReason says, in words for people, why the current round follows the one before; empty for the first.
func (h *history) startReason(membership bool) string {
	if len(h.rounds) < 2 {
		return ""
	}
	verdict, before := "restarted", h.rounds[len(h.rounds)-2]
	if membership {
		verdict = "a new round"
	}
	switch f := before.Failure; {
	case f != nil && before.End == report.EndFailure:
		return report.Head(fmt.Sprintf("%s after rank %d failed: %s", verdict, f.Rank, before.Why), report.MaxSummary)
	case before.Why != "":
		return report.Head(verdict+": "+before.Why, report.MaxSummary)
	}
	return verdict
}

// reopen opens the current round again: the supposed failure was the effect of a signal that ends the round.
func (h *history) reopen() {
	if r := h.last(); r != nil {
		r.Ended, r.End, r.Why, r.Failure = report.Time{}, "", "", nil
	}
}

// recordEnd closes a round that another round follows.
func (a *Agent) recordEnd() {
	var first *failure.Failure
	if own := a.ownFailures(); len(own) > 0 {
		first = &own[0]
	}
	if anyByItself(a.failures) {
		a.history.end(report.EndFailure, first.Summary, first)
		return
	}
	why := ""
	if a.halt != nil {
		why = a.halt.Why
	}
	a.history.end(report.EndStopped, why, first)
}
