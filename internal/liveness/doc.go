// Package liveness finds out from outside whether the workers of this node make progress: it looks for signs of life,
// and reports when no worker has shown one for long.
//
//	/proc, files, output counters ─▶ observation ┐
//	children in /proc ─▶ process list ───────────┼─▶ node (pure): signs ─▶ Quiet
//	memory of Python ─▶ stacks ──────────────────┘
//
// The decisions are a state machine without clock and files (node.go, worker.go, cadence.go): what it needs goes in,
// and signs come out. [Watcher] samples the workers and drives it. docs/design/hangs.md says what counts as a sign, and
// why.
//
// The package does not decide whether a job hangs, because that needs all nodes. It changes nothing in the workers.
//
// All methods of a [Watcher] may be called from several goroutines at once, but only one may be in Run.
package liveness
