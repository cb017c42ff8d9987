package agent

import (
	"cmp"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// The longest summary and the longest path that other nodes are sent, in bytes.
const (
	maxSummary = 512
	maxPath    = 1 << 10
)

// outgoing returns f as other nodes are sent it: with its age, and no longer than the limits.
func outgoing(f failure.Failure, now time.Time) rdzv.Failure {
	path := func(p string) string {
		if len(p) > maxPath {
			return ""
		}
		return strings.ToValidUTF8(p, "?")
	}
	f.ErrorFile, f.LogFile = path(f.ErrorFile), path(f.LogFile)
	f.Summary, f.Text = report.Head(f.Summary, maxSummary), report.Tail(f.Text, rdzv.MaxFailureText)
	return rdzv.Failure{Failure: f, Grade: f.Kind.Grade(), Absent: f.Kind == failure.Absent, Age: max(0, now.Sub(f.Time))}
}

// likeliest returns the one failure of a node that other nodes are sent; nil if there is none.
func likeliest(failures map[int]failure.Failure) *rdzv.Failure {
	all := RunResult{Failures: failures}.ordered()
	if len(all) == 0 {
		return nil
	}
	f := outgoing(all[0], time.Now())
	f.OnlyStopped = anyByItself(failures) == nil
	for _, other := range all[1:] {
		f.Alike = f.Alike || f.Signature() != "" && !other.Stopped && other.Signature() == f.Signature()
	}
	return &f
}

// incoming returns a failure that another node has sent, with its time by this machine's clock.
func incoming(sent rdzv.Failure, now time.Time) failure.Failure {
	f := sent.Failure
	f.Remote, f.Time = true, now.Add(-sent.Age)
	f.Findings = nil
	if f.Kind != "" {
		f.Findings = []failure.Finding{{Kind: f.Kind, Time: f.Time, Text: f.Summary}}
	}
	x := procs.Exit{Code: f.ExitCode, Signal: f.Signal}
	f.Kind, f.Summary = cmp.Or(f.Kind, kindOf(x)), cmp.Or(f.Summary, x.String())
	return f
}

func allIncoming(sent []rdzv.Failure, now time.Time) (all []failure.Failure) {
	for _, f := range sent {
		all = append(all, incoming(f, now))
	}
	return all
}

// rootCause returns the failure that ended the job: one of this node's own if it is the same, because more is known
// about it, else what the rendezvous sends. It is nil if the rendezvous sends none.
func rootCause(sent *rdzv.Failure, own map[int]failure.Failure, now time.Time) *failure.Failure {
	if sent == nil {
		return nil
	}
	there := incoming(*sent, now)
	if there.Kind == failure.Hang { // how the worker ended when it was stopped follows from that
		return &there
	}
	for _, f := range own {
		if f.Same(there) {
			return &f
		}
	}
	return &there
}
