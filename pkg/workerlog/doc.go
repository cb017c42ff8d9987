// Package workerlog carries the output of worker processes to the console and to log files.
//
// It makes the log folders of a run, copies each stream with line prefixes, filters and rotation, keeps the tail of
// each stream for failure reports, and records when a stream was written so that logs can be merged by time. It starts
// no process and knows nothing of jobs: package procs gives a worker the file that [Stream.ChildFile] returns.
//
// # Concurrency
//
// A [Console], a [FileWatch] and a [Timeline] may be used from any goroutine. Call the methods of one [Stream] one
// after another, except Tail, Ends and SetIdleTimeout, which may be called at any time. Wait and Close return once the
// goroutines that they belong to have ended.
package workerlog
