// Package agent runs the worker group of one node, from the first rendezvous to the final report. It does what
// SimpleElasticAgent and LocalElasticAgent do in torch 2.14 (torch/distributed/elastic/agent/server).
//
// An [Agent] joins a round, starts one process per worker, and watches them:
//
//	INIT ──rendezvous, start──▶ HEALTHY
//	HEALTHY ──all workers exit with 0──▶ SUCCEEDED ──so do those of all nodes──▶ end
//	HEALTHY ──a worker fails or cannot start──▶ FAILED ──report, stop──▶ STOPPED
//	HEALTHY, SUCCEEDED ──the rendezvous wants a new round: stop──▶ STOPPED
//	STOPPED ──rendezvous, start──▶ HEALTHY
//	STOPPED, INIT ──the job has ended──▶ SUCCEEDED or FAILED, end
//	any ──signal: leave, stop──▶ STOPPED, end
//	any ──defect──▶ UNKNOWN, end
//
// The agent does not know how many restarts are left. It reports to the rendezvous what its workers do. The rendezvous
// decides whether there is another round, whether it is charged, and how the job ends.
//
// The package reads no flags and opens no sockets. It reaches the rendezvous, processes, kernel and devices through the
// interfaces in interfaces.go. It emits each event once, to [Options].Events.
//
// One goroutine, the caller of [Agent.Run], owns the worker group and all other state. While workers run it waits in
// one select over exits, each [rdzv.Stop] and the context. [Agent.LastLines] and [Agent.WorkerGroup] may be called at
// any time. Call [Agent.Report] after Run.
//
// The decisions are pure functions: transitions (state.go), worker environment (env.go), root cause (result.go and
// package evidence, from what postmortem.go collects), and what other nodes are sent (wire.go).
//
// Workers are commands and never functions. So torch's return values, WorkerSpec.fn and the monitor interval have no
// counterpart.
package agent
