//go:build !linux

package liveness

func received() map[uint32]uint64 { return nil }

func socketsOf([]process) []uint32 { return nil }
