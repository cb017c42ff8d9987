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

// The longest summary and the longest path that are sent to other nodes, in bytes.
const (
	maxSummary = 512
	maxPath    = 1 << 10
)

// outgoing returns f in the form for other nodes: with its age, and no longer than the limits.
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

// likeliest returns the failure of this node that is sent to other nodes; nil for none.
func likeliest(failures map[int]failure.Failure) *rdzv.Failure {
	all := RunResult{Failures: failures}.ordered()
	if len(all) == 0 {
		return nil
	}
	f := outgoing(all[0], time.Now())
	f.OnlyStopped = !anyByItself(failures)
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

// rootCause returns the failure that ended the job, which the rendezvous has sent; nil if it has sent none. For a
// failure of this node, rootCause returns the node's own record, which holds more.
func rootCause(sent *rdzv.Failure, own map[int]failure.Failure, now time.Time) *failure.Failure {
	if sent == nil {
		return nil
	}
	there := incoming(*sent, now)
	if there.Kind == failure.Hang { // the node's own record only says how the stop ended the worker
		return &there
	}
	for _, f := range own {
		if f.Same(there) {
			return &f
		}
	}
	return &there
}
