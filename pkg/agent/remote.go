package agent

import (
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// forOthers is the failure as other nodes are told of it.
func (f Failure) forOthers(now time.Time) rdzv.Failure {
	return rdzv.Failure{
		Host: f.Host, GlobalRank: f.GlobalRank, LocalRank: f.LocalRank, PID: f.Exit.PID,
		ExitCode: f.Exit.Code, Signal: f.Exit.Signal,
		Grade: f.suspicion(), Age: max(0, now.Sub(f.Time)), Text: lastBytes(traceback(f), rdzv.MaxFailureText),
	}
}

// likeliest is the one of a node's failures that other nodes are told of; nil where there is none.
func likeliest(failures map[int]Failure) *rdzv.Failure {
	all := RunResult{Failures: failures}.ordered()
	if len(all) == 0 {
		return nil
	}
	f := all[0].forOthers(time.Now())
	return &f
}

// rootCause finds the failure that ended the job among this node's own, of which more is known, or makes it from what
// the rendezvous tells. It is nil where that tells nothing.
func rootCause(told *rdzv.Failure, own map[int]Failure, now time.Time) *Failure {
	if told == nil {
		return nil
	}
	there := Failure{
		Host: told.Host, GlobalRank: told.GlobalRank, LocalRank: told.LocalRank,
		Exit: procs.Exit{LocalRank: told.LocalRank, PID: told.PID, Code: told.ExitCode, Signal: told.Signal},
		Time: now.Add(-told.Age), Text: told.Text,
	}
	for _, f := range own {
		if f.same(there) {
			return &f
		}
	}
	return &there
}

// same reports whether f and g are about the same process.
func (f Failure) same(g Failure) bool {
	return f.Host == g.Host && f.Exit.PID == g.Exit.PID && f.GlobalRank == g.GlobalRank && f.LocalRank == g.LocalRank
}

// lastBytes returns s, or as many of its last lines as fit into limit bytes: the end of a traceback says the most.
func lastBytes(s string, limit int) string {
	const cut = "[...]\n"
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit+len(cut):]
	if _, whole, found := strings.Cut(s, "\n"); found && whole != "" {
		s = whole
	}
	return cut + strings.ToValidUTF8(s, "")
}
