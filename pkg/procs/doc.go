// Package procs starts, supervises, stops and classifies the worker processes of one node.
//
// A [Supervisor] makes the process a child subreaper and starts one [Group] of workers at a time. The group delivers
// the [Exit] of each worker, and [Group.Stop] ends the workers and every process that they started:
//
//	Spec ─Start─▶ running ─exit─▶ Exit on Group.Exits
//	                 │
//	                 └─Stop─▶ signal ─grace─▶ SIGKILL ─▶ no process left ─Drain─▶ all output written
//
// The package does not decide when to restart workers: package agent does. Output is the business of package workerlog.
// Package guard cleans up if the launcher itself is killed.
//
// A [Suspension] stops and continues all processes of the job, for job control.
//
// # Processes of the job
//
// Every worker starts in a session of its own. No process can enter an existing session from outside, and the subreaper
// adopts the orphans of the job. So the processes of the job are exactly the descendants of this process that are not
// in its session. No other process is ever signaled. Helpers that the program itself runs stay in its session.
//
// A worker that has exited stays a zombie until its group is stopped. So its pid, which is also the number of its
// process group, cannot be reused while it may still be signaled.
//
// Workers are forked by one thread that lives as long as the supervisor, because PDEATHSIG fires when the forking
// thread ends.
//
// This holds on Linux. On other systems, processes that leave their session are not found.
//
// # Concurrency
//
// All methods may be called from any goroutine, but Start, Stop and Drain of one group must be called in this order. A
// process has one Supervisor at a time, because each stop ends all processes of the job. Close waits for every
// goroutine that the package started.
package procs
