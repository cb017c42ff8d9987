// Package agent runs the worker group of one node from rendezvous to report
// (seed 002, SimpleElasticAgent and LocalElasticAgent).
//
//	INIT ─rendezvous, start─▶ HEALTHY ─all exit 0─▶ SUCCEEDED ─exit barrier─▶ end
//	                           │  ▲
//	       one exits non-zero  │  │ rendezvous, start
//	       (or cannot start)   ▼  │
//	                         FAILED ─restarts left: charge one─▶ STOPPED
//	                           │ none left─▶ end
//	HEALTHY ─nodes came or went─▶ STOPPED (not charged) ─▶ HEALTHY
//	any ─signal─▶ STOPPED, end            any ─defect─▶ UNKNOWN, end
//
// One goroutine, the caller of [Agent.Run], owns the worker group and changes
// its state; the rest of the program sees copies. It sleeps in one select over
// worker exits, membership changes and the context, so nothing is polled.
// Rendezvous and processes are behind the interfaces of this package.
//
// Decisions are pure: transitions (state.go), restart policy (policy.go), worker
// environment (env.go), root cause and report (failure.go, report.go).
//
// What seed 002 has and this package has not, because workers are commands and
// never functions: return values (a [RunResult] has none), WorkerSpec.fn, and
// the monitor interval.
package agent
