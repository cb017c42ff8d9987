// Package events defines the one stream of events that an agent emits, and the sinks that consume it.
//
// The agent emits each [Event] once. A [Sink] takes from the stream what it needs: [FileLog] writes the event log
// (docs/events.md), [TorchLines] prints the events of torch 2.14 (torch/distributed/elastic/events/api.py), and
// [Metrics] keeps the metrics of torch 2.14 (torch/distributed/elastic/metrics/api.py). internal/status derives the
// node's status from the same stream.
//
// The package is a leaf: it decides nothing about a job, and it is not a logger.
//
// All sinks are safe for concurrent use. A sink does not block its caller, except on the writer it was given.
package events
