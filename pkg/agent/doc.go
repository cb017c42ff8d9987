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
// one select (loop.go): for exits, each [rdzv.Stop], the context, timers and files of workers. [Agent.Answers],
// [Agent.LastLines] and [Agent.WorkerGroup] may be called at any time. Call [Agent.Report] after Run.
//
// The files by topic:
//
//	agent.go, options.go, interfaces.go, loop.go, round.go, state.go   the agent, its surroundings, and its rounds
//	spec.go, start.go, env.go, virtualrank.go, worker.go               the workers of a round: command, variables, ranks
//	stop.go, deferstop.go, killwatch.go, finalstacks.go, drain.go      how workers are stopped
//	barrier.go, ending.go, result.go, report.go, history.go            how the job ends for this node
//	postmortem.go, evidence.go, errorfile.go, wire.go, propagate.go    why a worker failed, and what other nodes learn
//	preempt.go, preemptfile.go, control.go                             preemption, and what workers say about restarts
//	liveness.go, progress.go, steps.go, stephistory.go                 signs of life and training steps
//	exitdeadline.go, uninterruptible.go, hungworker.go, timers.go      workers that do not end, or have timers
//	devices.go, fitness.go                                             what a restart waits for or requires
//	emit.go, usage.go                                                  events
//
// Transitions (state.go), the worker environment (env.go) and the order of failures (result.go, package evidence) are
// pure functions.
//
// Workers are commands and never functions. So torch's return values, WorkerSpec.fn and the monitor interval have no
// counterpart.
package agent
