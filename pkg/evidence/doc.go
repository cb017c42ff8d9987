// Package evidence finds out why a worker has failed. Functions that read disks and the kernel collect what the worker,
// its cgroup and the kernel left behind. Pure functions judge it, so tables test them.
//
//	stderr ─▶ Scanner ───────────────────▶┐
//	error file, exit ────────────────────▶│ Case ─▶ Judge ─▶ []failure.Finding, strongest first
//	Memory before and after, kernel log ─▶┘
//
// The package knows nothing about jobs, rounds and other nodes. Package agent orders the failures of one node, and
// package rounds those of all nodes.
//
// Everything here may be used by several goroutines, unless a type says otherwise.
package evidence
