package rounds

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// Job holds the parameters on which all agents of a run must agree.
type Job struct {
	Version  string `json:"version"` // of elasticrun
	Min      int    `json:"min"`
	Max      int    `json:"max"`
	Expected int    `json:"expected,omitempty"` // nodes known to come, clamped to [Min, Max]; 0: unknown
	// Multiple divides the number of nodes of each round, and Min and Max; 0 and 1 allow any number.
	Multiple      int           `json:"multiple,omitempty"`
	Static        bool          `json:"static,omitempty"` // ranks are the nodes' hints
	MaxRestarts   int           `json:"max_restarts"`
	RestartWindow time.Duration `json:"restart_window,omitempty"` // older failures are forgiven; 0: none is
	MaxNodeLosses int           `json:"max_node_losses"`          // losses in 10 minutes that quarantine a node; 0: none
	LastCall      time.Duration `json:"last_call"`
	JoinTimeout   time.Duration `json:"join_timeout"`
	JoinSettle    time.Duration `json:"join_settle"`
	// TTL is how long the store keeps the session of a silent agent.
	TTL time.Duration `json:"ttl,omitempty"`
	// Rejoin is how long nodes may take to stop the workers of a round; at least twice TTL.
	Rejoin    time.Duration `json:"rejoin_timeout"`
	MinUptime time.Duration `json:"min_uptime"` // failed rounds that were shorter are spaced by a pause
	Grow      Grow          `json:"grow"`
	ResultTTL time.Duration `json:"result_ttl"`
	Hangs     Hangs         `json:"hangs,omitzero"`
	Policy    Policy        `json:"policy,omitzero"`
	// PreemptGrace is how long workers may take to save when the job is preempted.
	PreemptGrace time.Duration `json:"preempt_grace,omitempty"`
}

// roundSize returns how many of n nodes a round may have.
func (j Job) roundSize(n int) int { return n - n%max(1, j.Multiple) }

// differenceFrom describes the first difference of two jobs in one line; empty if they are equal.
func (j Job) differenceFrom(from Job) string {
	if j == from { // nearly always, and every report has a job
		return ""
	}
	for _, f := range []struct {
		name   string
		ours   any
		theirs any
	}{
		{"elasticrun version", j.Version, from.Version},
		{"the minimum of --nnodes", j.Min, from.Min},
		{"the maximum of --nnodes", j.Max, from.Max},
		{"the divisor of the number of nodes (--nnodes-multiple, --world-size-multiple)", j.Multiple, from.Multiple},
		{"the static backend (--rdzv-backend)", j.Static, from.Static},
		{"--max-restarts", j.MaxRestarts, from.MaxRestarts},
		{"--restart-window", j.RestartWindow, from.RestartWindow},
		{"--max-node-losses", j.MaxNodeLosses, from.MaxNodeLosses},
		{"last_call_timeout", j.LastCall, from.LastCall},
		{"join_timeout", j.JoinTimeout, from.JoinTimeout},
		{"join_settle", j.JoinSettle, from.JoinSettle},
		{"keep_alive_interval × keep_alive_max_attempt", j.TTL, from.TTL},
		{"--rejoin-timeout", j.Rejoin, from.Rejoin},
		{"--min-uptime", j.MinUptime, from.MinUptime},
		{"--grow", j.Grow, from.Grow},
		{"result_ttl", j.ResultTTL, from.ResultTTL},
		{"--hang-timeout", j.Hangs.timeoutText(), from.Hangs.timeoutText()},
		{"--hang-action", j.Hangs.Action, from.Hangs.Action},
		{"--preempt-grace", j.PreemptGrace, from.PreemptGrace},
		{"--final-codes", j.Policy.FinalCodes, from.Policy.FinalCodes},
		{"--exclude-node-codes", j.Policy.ExcludeCodes, from.Policy.ExcludeCodes},
		{"--max-same-failures", j.Policy.MaxSame, from.Policy.MaxSame},
		{"--max-restarts-without-progress", j.Policy.MaxIdle, from.Policy.MaxIdle},
	} {
		if f.ours != f.theirs {
			return fmt.Sprintf("%s is %s on this node and %s in the job: give the same on all nodes", f.name, inWords(f.ours),
				inWords(f.theirs))
		}
	}
	return ""
}

// inWords formats a value of a job for people.
func inWords(value any) string {
	if d, ok := value.(time.Duration); ok {
		return seconds.Format(d)
	}
	return fmt.Sprint(value)
}

// Grow is when nodes that come to a running job are let in.
type Grow string

// The values of --grow.
const (
	GrowNow         Grow = "now"
	GrowNextRestart Grow = "next-restart"
	GrowNever       Grow = "never"
)
