// Package telemetry shows others what the agent does: on the console, in the event log, as torch's events, to
// --notify-cmd, at --status-addr, to health checks, and on the socket of elasticrun ps, status and stop.
//
// A Telemetry receives the agent's events. It does not block the agent, and the agent does not know who reads. The form
// of a status belongs to package status, the form of an event to package events.
//
// The agent emits from one goroutine at a time; Brief may be called from any goroutine between Attach and Close.
package telemetry
