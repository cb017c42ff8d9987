// Package report formats how a launch ended. A [Report] holds everything that is known. [Report.JSON] is for programs
// (--report, docs/report.md), and [Report.Text] is for people. Both are pure functions.
//
// [CheckFile] checks before the start whether the file can be written. [WriteFile] replaces the whole file at once, so
// that no reader sees half of it.
//
// The package does not find the root cause; package agent does. It is a leaf: it imports no package that deals with
// jobs.
//
// Everything here may be used by several goroutines, as long as none of them changes the Report.
package report
