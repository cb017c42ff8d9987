// Package procs starts, captures, stops and classifies the worker processes of
// one node.
//
// # Lifecycle
//
//	Spec ─Start─▶ running ─exit seen─▶ Exit on Group.Exits
//	                 │
//	                 └─Stop─▶ signal ─grace─▶ SIGKILL ─▶ nothing left ─Drain─▶ all output written
//
// A [Supervisor] makes the process a child subreaper and owns one thread that
// forks all workers, because PDEATHSIG is bound to the forking thread. A [Group] is
// one set of workers; a supervisor has one live group at a time.
//
// # What belongs to the job
//
// Every worker starts in a session of its own. No process can enter an existing
// session from outside, and orphans of the job are adopted by the subreaper. So
// the processes of the job are exactly the descendants of this process that are
// not in its session, and nothing else is ever signalled. Helpers that the
// program itself runs stay in its session and are left alone.
//
// A worker that has exited stays a zombie until its group is stopped, so its pid,
// which is also its process group's number, cannot be reused while it may still
// be signalled.
//
// # Concurrency
//
// All methods may be called from any goroutine, but Start, Stop and Drain of one
// group follow each other. Close waits for every goroutine the package started.
//
// Linux gives all of the above; elsewhere processes that leave their session are
// not found.
package procs
