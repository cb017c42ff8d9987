//go:build !linux

package telemetry

// orderDumps does nothing: NCCL exists on Linux only.
func (*Telemetry) orderDumps() {}
