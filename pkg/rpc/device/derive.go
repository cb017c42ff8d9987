package device

import (
	"maps"
	"slices"
)

// Reverse returns what the worker self needs to answer those whose maps have it as their target: by their names, which of
// its devices goes back to which of theirs. It takes workers that Validate accepts, in which no target device is taken twice.
func Reverse(self string, workers []Worker) map[string]Map {
	reverse := make(map[string]Map)
	for _, w := range workers {
		m, aimed := w.Maps[self]
		if !aimed {
			continue
		}
		reverse[w.Name] = make(Map, len(m))
		for source, target := range m {
			reverse[w.Name][target] = source
		}
	}
	return reverse
}

// List returns the devices of a worker, in order: those that it has declared, and else all but the CPU that its own maps
// and its reverse maps start from.
func List(declared []Device, own, reverse map[string]Map) []Device {
	if len(declared) > 0 {
		return slices.SortedFunc(slices.Values(declared), Compare)
	}
	used := make(map[Device]bool)
	for _, byName := range []map[string]Map{own, reverse} {
		for _, m := range byName {
			for source := range m {
				used[source] = true
			}
		}
	}
	delete(used, CPU())
	return slices.SortedFunc(maps.Keys(used), Compare)
}
