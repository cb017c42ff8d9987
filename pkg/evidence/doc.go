// Package evidence says why a worker has failed. Readers at the edge gather what the worker, its cgroup and the kernel
// left behind; everything that is decided from it is a pure function, so that it can be tested by tables.
//
//	stderr ─▶ Scanner ──────────────▶┐
//	error file, exit ───────────────▶│ Case ─▶ Judge ─▶ []Finding, strongest first
//	Memory before and after, Kernel ▶┘
//
// A [Finding] is one piece of evidence. Its kind has a grade: the lower the grade, the likelier the worker began it all.
// Everything here may be used from any goroutine, unless a type says otherwise.
package evidence
