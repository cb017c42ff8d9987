// Package records writes the files that a launch leaves behind: --report and the error file that
// TORCHELASTIC_ERROR_FILE names.
//
// It says how a launch ended and decides nothing. The event log, which is written while the job runs, belongs to
// package telemetry. A Records belongs to one goroutine.
package records
