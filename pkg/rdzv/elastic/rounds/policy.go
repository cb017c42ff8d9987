package rounds

import (
	"fmt"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Policy says which failures no restart follows, besides those beyond the budget. The zero value has no rule.
type Policy struct {
	// FinalCodes are the exit codes of the root cause that end the job, ExcludeCodes those that quarantine its node.
	FinalCodes   rdzv.ExitCodes `json:"final_codes,omitzero"`
	ExcludeCodes rdzv.ExitCodes `json:"exclude_codes,omitzero"`
	// MaxSame ends the job once the same failure has happened that many times in a row; 0 for never.
	MaxSame int `json:"max_same,omitempty"`
	// MaxIdle ends the job once that many restarts in a row have brought no progress; 0 for never.
	MaxIdle int `json:"max_idle,omitempty"`
}

// failedRound holds the facts about a failed round that a policy judges.
type failedRound struct {
	signature string // of the root cause; empty if the failure says nothing of its worker
	rank      int    // of the root cause
	alike     bool   // other workers have failed in the same way, so the rank is chance
	code      int    // of the root cause, as in a shell
	stop      string // the node whose worker has said that a restart would not help; empty for none
	step      *int64 // the last step of any worker; nil if it is not known
	world     int    // number of workers
}

// repeats summarizes what the last failure has in common with those directly before it. Rounds that ended without a
// charged failure do not count.
type repeats struct {
	Signature string `json:"signature,omitempty"`
	Rank      int    `json:"rank,omitempty"`
	Alike     bool   `json:"alike,omitempty"`
	Same      int    `json:"same,omitempty"` // how many times in a row this failure has happened
	// Step is the last known step, with World workers; nil if none is known. Older says that the step of the last failure
	// is not known, so Step is that of an earlier one.
	Step  *int64 `json:"step,omitempty"`
	World int    `json:"world,omitempty"`
	Older bool   `json:"older,omitempty"`
	Idle  int    `json:"idle,omitempty"` // restarts in a row, up to the last failure, that brought no progress
}

// after returns the summary that includes the failure f. A later step than the last known one is progress. Lack of
// progress is known only if both failures have a step and the same number of workers, because step numbers may depend
// on the number of workers. A missing step proves nothing.
func (r repeats) after(f failedRound) repeats {
	next := repeats{Signature: f.signature, Rank: f.rank, Alike: f.alike, Step: f.step, World: f.world}
	progress := r.Step != nil && f.step != nil && *f.step > *r.Step
	if f.step == nil {
		next.Step, next.World, next.Older = r.Step, r.World, r.Step != nil
	} else if r.Step != nil && !progress && !r.Older && r.World == f.world {
		next.Idle = r.Idle + 1
	}
	if f.signature == "" {
		return next
	}
	next.Same = 1
	if f.signature == r.Signature && (f.rank == r.Rank || f.alike || r.Alike) && !progress {
		next.Same = r.Same + 1
	}
	return next
}

// verdict returns the rule that ends the job after the failure f, and why, for people. Both are empty if no rule ends
// it. r includes f.
func (p Policy) verdict(r repeats, f failedRound) (rule rdzv.Rule, why string) {
	switch {
	case f.stop != "":
		return rdzv.RuleStop, fmt.Sprintf("a worker on %s has written \"stop\" into its control file", f.stop)
	case p.FinalCodes.Has(f.code):
		return rdzv.RuleFinalCode, fmt.Sprintf("exit code %d is one of --final-codes", f.code)
	case p.MaxSame > 0 && r.Same >= p.MaxSame:
		return rdzv.RuleSameFailure, fmt.Sprintf("the same failure has happened %s in a row (--max-same-failures=%d)",
			plural.Of(r.Same, "time"), p.MaxSame)
	case p.MaxIdle > 0 && r.Idle >= p.MaxIdle:
		return rdzv.RuleNoProgress, fmt.Sprintf("%s in a row brought no progress beyond step %d "+
			"(--max-restarts-without-progress=%d)", plural.Of(r.Idle, "restart"), *r.Step, p.MaxIdle)
	}
	return "", ""
}

// notice says that failures repeat, for the nodes of the next round; empty if they do not.
func (r repeats) notice() string {
	if r.Same < 2 {
		return ""
	}
	text := fmt.Sprintf("this was the same failure as before, %d times in a row", r.Same)
	if r.Idle > 0 {
		text += fmt.Sprintf(", at step %d again", *r.Step)
	}
	return text
}
