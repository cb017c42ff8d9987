package device

import (
	"maps"
	"slices"
)

// Worker describes a member of a group.
type Worker struct {
	// Name is unique in the group.
	Name string
	// Count is the number of GPUs that the worker sees.
	Count int
	// Maps holds the worker's maps by the name of the target.
	Maps map[string]Map
	// Devices lists the declared devices. If it is empty, maps may use every device that the worker has.
	Devices []Device
}

// Validate checks the devices and maps of all members of a group. It follows torch 2.14
// torch/distributed/rpc/backend_registry.py (_validate_device_maps). A static group knows all members, so it refuses
// a map for an unknown target. A dynamic group accepts such a map and checks it when the target joins.
//
// Validate checks workers in the given order, and the maps of each in the order of the targets' names. So members
// with the same input find the same error, a [*MapError].
func Validate(workers []Worker, static bool) error {
	byName := make(map[string]Worker, len(workers))
	for _, w := range workers {
		byName[w.Name] = w
	}
	for _, w := range workers {
		if err := w.checkDeclared(); err != nil {
			return err
		}
	}
	for _, source := range workers {
		targets := slices.Sorted(maps.Keys(source.Maps))
		for _, name := range targets {
			if _, known := byName[name]; static && !known {
				return &MapError{
					Err: ErrUnknownTarget, Worker: source.Name, Target: name, Map: source.Maps[name], Known: names(workers),
				}
			}
		}
		for _, name := range targets {
			if err := source.checkMap(name, byName); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w Worker) checkDeclared() error {
	bad := MapError{Worker: w.Name, Devices: w.Devices, Count: w.Count}
	if wrong := repeated(w.Devices); len(wrong) > 0 {
		return bad.because(ErrDuplicateDevices, wrong)
	}
	if wrong := without(w.Devices, w.has); len(wrong) > 0 {
		return bad.because(ErrInvalidDevices, wrong)
	}
	return nil
}

// checkMap checks the map for one target. It does not check the target's devices if the target is unknown.
func (w Worker) checkMap(name string, byName map[string]Worker) error {
	m := w.Maps[name]
	bad := MapError{Worker: w.Name, Target: name, Map: m}
	if wrong := repeated(slices.Collect(maps.Values(m))); len(wrong) > 0 {
		return bad.because(ErrDuplicateTargets, wrong)
	}
	bad.Devices, bad.Count = w.Devices, w.Count
	if wrong := without(slices.Collect(maps.Keys(m)), w.mayUse); len(wrong) > 0 {
		return bad.because(w.either(ErrUnexpectedSources, ErrInvalidSources), wrong)
	}
	target, known := byName[name]
	if !known {
		return nil
	}
	bad.Devices, bad.Count = target.Devices, target.Count
	if wrong := without(slices.Collect(maps.Values(m)), target.mayUse); len(wrong) > 0 {
		return bad.because(target.either(ErrUnexpectedTargets, ErrInvalidTargets), wrong)
	}
	return nil
}

// has reports whether the worker has the device. Every worker has a CPU.
func (w Worker) has(d Device) bool {
	return d == CPU() || d.Type == cudaType && 0 <= d.Index && d.Index < w.Count
}

// mayUse reports whether a map may use the worker's device: the worker declares it, or declares none and has it.
func (w Worker) mayUse(d Device) bool {
	if len(w.Devices) > 0 {
		return slices.Contains(w.Devices, d)
	}
	return w.has(d)
}

// either returns the first error for a worker that declares devices, else the second.
func (w Worker) either(undeclared, missing error) error {
	if len(w.Devices) > 0 {
		return undeclared
	}
	return missing
}

// repeated returns the devices that occur more than once, each once, in order.
func repeated(devices []Device) []Device {
	seen := make(map[Device]int, len(devices))
	for _, d := range devices {
		seen[d]++
	}
	maps.DeleteFunc(seen, func(_ Device, times int) bool { return times == 1 })
	return slices.SortedFunc(maps.Keys(seen), Compare)
}

// without returns the devices that are not good, in order.
func without(devices []Device, good func(Device) bool) []Device {
	return slices.SortedFunc(func(yield func(Device) bool) {
		for _, d := range devices {
			if !good(d) && !yield(d) {
				return
			}
		}
	}, Compare)
}

func names(workers []Worker) []string {
	list := make([]string, len(workers))
	for i, w := range workers {
		list[i] = w.Name
	}
	return list
}
