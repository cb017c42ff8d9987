package device

import (
	"maps"
	"slices"
)

// Reverse returns the maps by which self answers the workers whose maps have self as their target: for each of their
// names, the pairs from a device of self to a device of theirs. Validate must have accepted workers, so that no
// target device occurs twice.
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

// List returns the devices of a worker in order: the declared ones, or else all source devices of its own maps and
// its reverse maps, except the CPU.
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
