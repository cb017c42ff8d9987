// Package proctree reads the process table, and signals, reaps and kills descendants of this process.
//
// Package procs uses it to stop a worker group, and package guard to kill whatever an agent left behind. It does not
// know which children are workers: the caller says which children it must leave alone.
//
// # A foreign /proc
//
// If /proc is missing, or was mounted for another pid namespace (unshare --pid without --mount-proc), its pids are not
// those of kill(2) and waitid(2). Then the package uses none of them. waitid still reports whether a pid is a child of
// this process, and a child's pid cannot be reused before this process reaps it. A subreaper that kills its children
// adopts their children, so generation by generation it reaches every descendant.
//
// # Concurrency
//
// The functions keep no state and may be called from any goroutine. [Reap] and [Sweep] take exit statuses, so no other
// goroutine may wait for the same child.
package proctree
