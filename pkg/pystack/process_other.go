//go:build !linux

package pystack

import "runtime"

// identity, threadNumbers and what follows exist so that the package compiles: without a Process nothing calls them.
type identity struct{}

func (*identity) check(int, memory) error { return nil }

type threadNumbers struct{}

func (*threadNumbers) refresh(int) error { return nil }

func (*threadNumbers) kernelID(*reader, uint64) (int, bool) { return 0, false }

func threadName(int, int) (string, error) { return "", nil }

func open(int) (*Process, error) {
	return nil, unsupported("reading Python stacks is not supported on %s", runtime.GOOS)
}
