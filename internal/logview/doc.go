// Package logview shows the logs of one run on one machine: the lines of all its workers, ordered by time, while they
// are written or afterwards.
//
//	run folder ─▶ attempts, one after another ─▶ streams ─┬▶ merge by time ─▶ filter, prefix ─▶ out
//	                      └ timeline ─▶ clock of a stream ─┘
//
// It reads the files of a workerlog.LogDir and writes none. It holds one line of each stream and one mark of its
// timeline at a time, so memory does not grow with the logs. The time of a line is interpolated between the marks
// around it.
//
// A [View] belongs to one goroutine, which waits for change notices from the kernel.
package logview
