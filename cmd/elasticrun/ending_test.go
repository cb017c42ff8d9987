package main

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// ended is the failure of a worker that ended with e.
func ended(rank, localRank int, e procs.Exit) failure.Failure {
	return failure.Failure{
		Host: "node7", GlobalRank: rank, LocalRank: localRank, ExitCode: e.Code, Signal: e.Signal, Stopped: e.Stopped,
		Summary: e.String(),
	}
}

// failed is the result of a run whose worker of rank 3 ended with e.
func failed(e procs.Exit) agent.RunResult {
	return agent.RunResult{State: agent.Failed, Failures: map[int]failure.Failure{3: ended(3, 1, e)}}
}

// elsewhere is the result of a run that ended because of a worker on another node, while rank 3 here failed too.
func elsewhere(e procs.Exit) agent.RunResult {
	r := failed(procs.Exit{Code: 1})
	r.Cause = new(ended(60, 4, e))
	return r
}

func TestConclude(t *testing.T) {
	tests := []struct {
		name   string
		result agent.RunResult
		err    error
		code   int
		reason exitcode.Reason
		line   string
	}{
		{name: "success", result: agent.RunResult{State: agent.Succeeded}},
		{
			name: "a worker's own code", result: failed(procs.Exit{Code: 7}), code: 7, reason: exitcode.ReasonWorkerFailed,
			line: `elasticrun: exit_code=7 reason=worker_failed rank=3 local_rank=1 summary="exited with code 7"`,
		},
		{
			name: "a worker's 2 is not bad usage", result: failed(procs.Exit{Code: 2}), code: 2,
			reason: exitcode.ReasonWorkerFailed,
		},
		{
			name: "a worker that could not be executed", result: failed(procs.Exit{Code: 127, StartErr: errors.New("no")}),
			code: 127, reason: exitcode.ReasonWorkerFailed,
		},
		{
			name: "a worker killed", result: failed(procs.Exit{Signal: syscall.SIGSEGV}), code: 139,
			reason: exitcode.ReasonWorkerKilled,
			line:   `elasticrun: exit_code=139 reason=worker_killed rank=3 local_rank=1 summary="killed by signal 11 (SIGSEGV)"`,
		},
		{
			name: "failed for no known reason", result: agent.RunResult{State: agent.Failed}, code: 1,
			reason: exitcode.ReasonWorkerFailed,
		},
		{
			name: "another node's worker", result: elsewhere(procs.Exit{Code: 9}), code: 9, reason: exitcode.ReasonWorkerFailed,
			line: `elasticrun: exit_code=9 reason=worker_failed rank=60 local_rank=4 summary="exited with code 9"`,
		},
		{
			name: "another node's worker, killed", result: elsewhere(procs.Exit{Signal: syscall.SIGKILL}), code: 137,
			reason: exitcode.ReasonWorkerKilled,
			line:   `elasticrun: exit_code=137 reason=worker_killed rank=60 local_rank=4 summary="killed by signal 9 (SIGKILL)"`,
		},
		{
			name: "no worker shows a fault of its own", code: 1, reason: exitcode.ReasonWorkerFailed,
			result: agent.RunResult{State: agent.Failed, Cause: &failure.Failure{
				GlobalRank: 3, LocalRank: 1, ExitCode: 1, Kind: failure.PeerLost, Summary: "Connection closed",
			}},
			line: `elasticrun: exit_code=1 reason=worker_failed rank=3 local_rank=1 summary="Connection closed" note="no worker shows a fault of its own: ` +
				`the first that lost its peer is named; look for a hang or a network fault"`,
		},
		{
			name: "another node reports a failure with code 0", result: elsewhere(procs.Exit{}), code: 1,
			reason: exitcode.ReasonWorkerFailed,
		},
		{
			name: "a node that the job has ended without", code: 7, reason: exitcode.ReasonWorkerFailed,
			result: agent.RunResult{State: agent.Failed, Cause: new(ended(0, 0, procs.Exit{Code: 7}))},
			line:   `elasticrun: exit_code=7 reason=worker_failed rank=0 local_rank=0 summary="exited with code 7"`,
		},
		{
			name: "not fit any more", result: failed(procs.Exit{Code: 7}),
			err:  fmt.Errorf("run: %w", &agent.UnfitError{Err: errors.New("a link is down")}),
			code: 72, reason: exitcode.ReasonPreflight, line: "elasticrun: exit_code=72 reason=preflight",
		},
		{
			name: "stopped by a signal", err: fmt.Errorf("run: %w", &agent.SignalError{Signal: syscall.SIGTERM}), code: 143,
			reason: exitcode.ReasonSignal,
			line:   "elasticrun: exit_code=143 reason=signal",
		},
		{name: "stopped by a signal, and a process is stuck", err: errors.Join(&agent.SignalError{Signal: syscall.SIGINT},
			&procs.StuckError{}), code: 130, reason: exitcode.ReasonSignal},
		{name: "the guard is gone", err: errGuardGone, code: 137, reason: exitcode.ReasonSignal},
		{name: "bad usage", err: &config.UsageError{Problem: "no"}, code: 2, reason: exitcode.ReasonUsage},
		{name: "a port that is taken", err: &rdzv.ListenError{Err: syscall.EADDRINUSE}, code: 2, reason: exitcode.ReasonUsage},
		{
			name: "rendezvous timed out", err: fmt.Errorf("join: %w", rdzv.ErrTimeout), code: 75,
			reason: exitcode.ReasonRendezvous,
		},
		{name: "rendezvous lost", err: rdzv.ErrConnection, code: 75, reason: exitcode.ReasonRendezvous},
		{
			name: "a group that is UNKNOWN", err: &agent.StateError{From: agent.Unknown, To: agent.Healthy}, code: 70,
			reason: exitcode.ReasonInternal,
		},
		{
			name: "a worker failed and its siblings do not die", result: failed(procs.Exit{Code: 7}),
			err: &procs.StuckError{}, code: 7,
			reason: exitcode.ReasonWorkerFailed, line: `elasticrun: exit_code=7 reason=worker_failed rank=3 local_rank=1 summary="exited with code 7"`,
		},
		{
			name: "rendezvous lost after a failure", result: failed(procs.Exit{Code: 7}), err: rdzv.ErrConnection, code: 75,
			reason: exitcode.ReasonRendezvous,
		},
		{
			name: "the job ended before enough nodes came", code: 75, reason: exitcode.ReasonRendezvous,
			err: fmt.Errorf("join: %w", &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndTimeout}}),
		},
		{
			name: "the job was closed", err: &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndClosed}}, code: 76,
			reason: exitcode.ReasonClosed, line: "elasticrun: exit_code=76 reason=closed",
		},
		{
			name: "a node was lost after others had left", code: 75, reason: exitcode.ReasonNodeLost,
			err:  &rdzv.EndedError{Outcome: rdzv.Outcome{Ending: rdzv.EndNodeLost}},
			line: "elasticrun: exit_code=75 reason=node_lost",
		},
		{
			name: "late, or a spare, and the job succeeded", result: agent.RunResult{
				State:          agent.Succeeded,
				NothingStarted: "nothing was started here",
			},
			reason: exitcode.ReasonNothingStarted, line: "elasticrun: exit_code=0 reason=nothing_started",
		},
		{
			name: "late, and the job failed", code: 7, reason: exitcode.ReasonWorkerFailed,
			result: agent.RunResult{
				State: agent.Failed, Cause: new(ended(0, 0, procs.Exit{Code: 7})),
				NothingStarted: "nothing was started here",
			},
			line: `elasticrun: exit_code=7 reason=worker_failed rank=0 local_rank=0 summary="exited with code 7" note="nothing was started here"`,
		},
		{
			name: "late or a rerun, which is unknown", err: &rounds.FinishedError{RunID: "job"}, code: 73,
			reason: exitcode.ReasonFinished,
			line:   "elasticrun: exit_code=73 reason=finished",
		},
		{
			name: "no room for threads", err: &procs.ResourceError{Problem: "no room"}, code: 72,
			reason: exitcode.ReasonPreflight,
		},
		{
			name: "no more open files", err: fmt.Errorf("open stdout: %w", syscall.EMFILE), code: 72,
			reason: exitcode.ReasonPreflight,
		},
		{name: "a full disk", err: fmt.Errorf("make a folder: %w", syscall.ENOSPC), code: 72, reason: exitcode.ReasonPreflight},
		{name: "processes that do not die", err: &procs.StuckError{}, code: 71, reason: exitcode.ReasonStuck},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := conclude(tt.result, tt.err)
			if got.code != tt.code || got.reason != tt.reason {
				t.Errorf("code %d reason %q, want %d %q", got.code, got.reason, tt.code, tt.reason)
			}
			if tt.line != "" && lastLine(got) != tt.line {
				t.Errorf("last line %q, want %q", lastLine(got), tt.line)
			}
		})
	}
}
