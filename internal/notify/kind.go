package notify

import "github.com/elasticrun/elasticrun/pkg/events"

// Kind says what a notice is about.
type Kind string

// The kinds.
const (
	Ended           Kind = "ended"            // the launcher has ended
	Restart         Kind = "restart"          // the workers were restarted after a failure
	RepeatedFailure Kind = "repeated_failure" // a restart after the same failure as the one before
	BudgetSpent     Kind = "budget_spent"     // a restart after which no restart is left
	NodeLost        Kind = "node_lost"        // the job goes on without a node, or with another one
	Hang            Kind = "hang"             // a hang is suspected
	Preempted       Kind = "preempted"        // the workers should save a checkpoint
)

// kindOf returns the kind of an event's notice; empty for none. Only the node with rank 0 in the job's latest round
// sends notices.
func (o Options) kindOf(e events.Event) Kind {
	first := o.Only
	if e.NodeRank != nil {
		first = *e.NodeRank == 0
	}
	switch {
	case !first:
		return ""
	case e.Kind == events.KindEnd:
		return Ended
	case e.Kind == events.KindHang:
		return Hang
	case e.Kind == events.KindPreempted:
		return Preempted
	case e.Kind != events.KindRound:
		return ""
	case e.LostNodes > 0:
		return NodeLost
	case e.SameFailures == 0: // no failure was charged
		return ""
	case !o.Windowed && e.Restarts != nil && e.MaxRestarts != nil && *e.Restarts >= *e.MaxRestarts:
		return BudgetSpent
	case e.SameFailures > 1:
		return RepeatedFailure
	}
	return Restart
}
