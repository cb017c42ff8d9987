package device

import (
	"maps"
	"slices"
)

// Worker is what a member of a group has told of its devices.
type Worker struct {
	// Name is the member's; no other member has it.
	Name string
	// Count is the number of GPUs that it sees.
	Count int
	// Maps are its own, by the name of the target.
	Maps map[string]Map
	// Devices are those that it has declared. With none, its maps may name any device that it has.
	Devices []Device
}

// Validate checks what the members of a group have told, by the rules of seed 004. In a static group all members are known, so a map
// for anybody else is refused; a dynamic group skips that, since the target may join later, and then checks it.
//
// Workers are checked in the order given and the maps of each in the order of the targets' names. So members that
// were given the same find the same error, a [*MapError].
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
				return &MapError{Err: ErrUnknownTarget, Worker: source.Name, Target: name, Map: source.Maps[name], Known: names(workers)}
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

// checkMap checks the map for one target, whose devices are not checked if it is not known.
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

// has tells whether a device exists at the worker: any has a CPU.
func (w Worker) has(d Device) bool {
	return d == CPU() || d.Type == cudaType && 0 <= d.Index && d.Index < w.Count
}

// mayUse tells whether the worker's device may stand in a map: it was declared or, where none was, exists.
func (w Worker) mayUse(d Device) bool {
	if len(w.Devices) > 0 {
		return slices.Contains(w.Devices, d)
	}
	return w.has(d)
}

// either returns the error of a worker that has declared devices or of one that has not.
func (w Worker) either(undeclared, missing error) error {
	if len(w.Devices) > 0 {
		return undeclared
	}
	return missing
}

// repeated returns those that stand in devices more than once, each of them once, in order.
func repeated(devices []Device) []Device {
	seen := make(map[Device]int, len(devices))
	for _, d := range devices {
		seen[d]++
	}
	maps.DeleteFunc(seen, func(_ Device, times int) bool { return times == 1 })
	return slices.SortedFunc(maps.Keys(seen), Compare)
}

// without returns those of devices that are not good, in order.
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
