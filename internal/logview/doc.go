// Package logview shows the logs of one run on one machine: the lines of all its
// workers, in the order of time, while they are written or afterwards.
//
//	run folder ─▶ attempts, one after another ─▶ streams ─┬▶ merge by time ─▶ filter, prefix ─▶ out
//	                      └ timeline ─▶ clock of a stream ─┘
//
// The files of a run are those of procs.LogDir. Of each stream one line is held at
// a time, and of its timeline one mark, so that memory does not grow with the logs.
// When a line was written is reckoned from the marks around it.
//
// A [View] is for one goroutine, which waits for the kernel to tell of changes.
package logview
