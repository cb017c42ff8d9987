// Package report says how a launch ended: [Report] holds all that is known, [Report.JSON] is what programs read
// (--report) and [Report.Text] what people read. Both are pure functions.
//
// [CheckFile] finds out before anything is started whether the file can be written, and [WriteFile] replaces it as a
// whole, so that no reader sees half of it.
//
// Everything here may be used from any goroutine, as long as nobody changes the Report.
package report
