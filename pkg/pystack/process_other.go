//go:build !linux

package pystack

import "runtime"

// These types and functions exist so that the package compiles. Open makes no Process here, so nothing calls them.
type identity struct{}

func (*identity) check(int, memory) error { return nil }

type threadIDs struct{}

func (*threadIDs) refresh(int) error { return nil }

func (*threadIDs) kernelID(*reader, uint64) (int, bool) { return 0, false }

func threadName(int, int) (string, error) { return "", nil }

func open(int) (*Process, error) {
	return nil, unsupported("reading Python stacks is not supported on %s", runtime.GOOS)
}
