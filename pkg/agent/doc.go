// Package agent runs the worker group of one node from rendezvous to report
// (seed 002, SimpleElasticAgent and LocalElasticAgent).
//
//	INIT ─rendezvous, start─▶ HEALTHY
//	HEALTHY ─all exit 0─▶ SUCCEEDED ─every node's have─▶ end
//	HEALTHY ─one fails, or cannot start: tell, stop─▶ FAILED ─▶ STOPPED
//	HEALTHY, SUCCEEDED ─told to run again: stop─▶ STOPPED
//	STOPPED ─rendezvous, start─▶ HEALTHY
//	STOPPED, INIT ─the job has ended─▶ SUCCEEDED or FAILED, end
//	any ─signal: tell, stop─▶ STOPPED, end            any ─defect─▶ UNKNOWN, end
//
// The agent does not know how many restarts are left: it tells the rendezvous what
// its workers do, and is told whether there is another round, what is charged, and
// how the job has ended.
//
// One goroutine, the caller of [Agent.Run], owns the worker group and changes
// its state; the rest of the program sees copies. It sleeps in one select over
// worker exits, orders of the rendezvous and the context, so nothing is polled.
// Rendezvous and processes are behind the interfaces of this package.
//
// Decisions are pure: transitions (state.go), worker environment (env.go), root
// cause and report (failure.go, result.go, report.go; package evidence), what other nodes are told
// (remote.go).
//
// What seed 002 has and this package has not, because workers are commands and
// never functions: return values (a [RunResult] has none), WorkerSpec.fn, and
// the monitor interval.
package agent
