// Package events holds what the agent tells about a job: typed events and
// metrics, and the sinks that take them. It imports nothing of this module, so
// that everything else may emit.
//
// Events and metric names are those of seed 002 (torchelastic), so that whoever
// reads torchrun's today can read these. All sinks here are safe for concurrent
// use and none of them blocks on anything but its own writer.
package events
