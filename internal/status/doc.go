// Package status describes what an agent and its workers are doing, and shows it to people and programs.
//
//	Snapshot   what one agent knows about itself; docs/status.md describes its JSON form    (snapshot.go)
//	Tracker    turns the agent's events into a Snapshot                                     (tracker.go)
//	Observer   adds what is measured on demand: CPU, memory, GPUs, last lines               (observer.go, probe.go)
//	Serve      serves it over HTTP, as JSON and as metrics       (server.go, metrics.go, torchmetrics.go)
//	Job        all nodes of a job; Text shows it to people                                  (job.go, text.go)
//	Watch...   elasticrun status: asks one agent, or the store of a job   (watch.go, fetch.go, printer.go)
//	LocalJobs  elasticrun ps: the jobs on this machine, by their sockets  (ps.go, choose.go, local.go)
//	Stop       elasticrun stop: closes a run, by a socket or in its store (stop.go)
//	Stacks     elasticrun stacks: where a job's workers are               (stackscommand.go, stacks.go)
//	PrintRuns  the runs of this user with log folders                     (runs.go)
//	ServeHealth answers health checks of the agent                        (health.go)
//
// A Tracker and an Observer may be used from any goroutine. Neither can block the agent: a Tracker only stores what the
// events say, and slow measurements run in goroutines that are started on demand.
package status
