// Package proctree reads the process table, and signals, reaps and kills descendants of this process.
//
// It serves a supervisor, which stops one worker group, and a guard, which kills whatever an agent left behind. It does not
// know workers: which children have another owner is the caller's to say.
//
// Its functions keep no state and may be called from any goroutine. Reap and Sweep take exit statuses, so only one
// goroutine at a time may wait for a given child.
package proctree
