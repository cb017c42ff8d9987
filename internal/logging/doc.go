// Package logging makes elasticrun's own log.
//
// A log line never blocks the agent or the store: it goes through a bounded queue that drops its oldest lines. Text
// that other nodes or the store have written cannot control the terminal. Warnings keeps the warnings for the report.
// The package does not handle the output of workers; package workerlog does.
//
// The logger and Warnings may be used from any goroutine.
package logging
