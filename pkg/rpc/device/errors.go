package device

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors that Validate finds. A [*MapError] wraps one of them.
var (
	// ErrDuplicateDevices means that a worker declares a device more than once.
	ErrDuplicateDevices = errors.New("declared more than once")
	// ErrInvalidDevices means that a worker declares devices that it does not have.
	ErrInvalidDevices = errors.New("declared devices do not exist")
	// ErrUnknownTarget means that a map's target is not in the static group.
	ErrUnknownTarget = errors.New("no worker of the group has that name")
	// ErrDuplicateTargets means that a map has more than one source for a target device.
	ErrDuplicateTargets = errors.New("target devices have more than one source")
	// ErrUnexpectedSources means that a worker's map has source devices that the worker does not declare, though it
	// declares others.
	ErrUnexpectedSources = errors.New("source devices are not declared")
	// ErrInvalidSources means that a map has source devices that its worker does not have. The worker declares none.
	ErrInvalidSources = errors.New("source devices do not exist")
	// ErrUnexpectedTargets means that a map has target devices that the target does not declare, though it declares
	// others.
	ErrUnexpectedTargets = errors.New("target devices are not declared")
	// ErrInvalidTargets means that a map has target devices that the target does not have. The target declares none.
	ErrInvalidTargets = errors.New("target devices do not exist")
)

// MapError describes an error in the devices or maps of one worker.
type MapError struct {
	// Err is one of the errors above.
	Err error
	// Worker is the name of the worker with the error.
	Worker string
	// Target is the target of the map, and Map the map. They are "" and nil if the error is in the devices that
	// Worker declares.
	Target string
	Map    Map
	// Wrong lists the wrong devices in order. It is empty for ErrUnknownTarget.
	Wrong []Device
	// Devices and Count are the declared devices and the number of GPUs of the owner of Wrong, which is Worker or
	// Target.
	Devices []Device
	Count   int
	// Known lists the names of the group in order, for ErrUnknownTarget.
	Known []string
}

// because returns a copy with the error and the wrong devices.
func (e MapError) because(err error, wrong []Device) *MapError {
	e.Err, e.Wrong = err, wrong
	return &e
}

func (e *MapError) Unwrap() error { return e.Err }

// Error returns one line: who, which devices, of how many, and what to do. Equal errors have equal lines.
func (e *MapError) Error() string {
	about, advice := e.about()
	text := fmt.Sprintf("worker %q: %s: %v", e.Worker, about, e.Err)
	if len(e.Wrong) > 0 {
		text += ": " + list(e.Wrong)
	}
	return text + "; " + advice
}

// about returns the subject of the error and what to do.
func (e *MapError) about() (what, advice string) {
	is := func(err error) bool { return errors.Is(e.Err, err) }
	what = fmt.Sprintf("device map %v for %q", e.Map, e.Target)
	switch {
	case is(ErrDuplicateDevices):
		return fmt.Sprintf("devices %v", e.Devices), "name each device once"
	case is(ErrInvalidDevices):
		return fmt.Sprintf("devices %v", e.Devices), e.onlyExisting(e.Worker)
	case is(ErrUnknownTarget):
		return what, "it has " + some(e.Known)
	case is(ErrDuplicateTargets):
		return what, "give each source a target of its own"
	case is(ErrUnexpectedSources):
		return what, e.onlyDeclared(e.Worker)
	case is(ErrInvalidSources):
		return what, e.onlyExisting(e.Worker)
	case is(ErrUnexpectedTargets):
		return what, e.onlyDeclared(e.Target)
	default:
		return what, e.onlyExisting(e.Target)
	}
}

func (e *MapError) onlyDeclared(worker string) string {
	return fmt.Sprintf("worker %q declares %v: map only these, or declare more", worker, e.Devices)
}

func (e *MapError) onlyExisting(worker string) string {
	return fmt.Sprintf("worker %q has %s: name only these", worker, existing(e.Count))
}

// existing describes the devices of a worker with this many GPUs.
func existing(count int) string {
	switch {
	case count < 1:
		return "the cpu and no GPU"
	case count == 1:
		return "the cpu and 1 GPU, cuda:0"
	}
	return fmt.Sprintf("the cpu and %d GPUs, cuda:0 to %v", count, CUDA(count-1))
}

func list(devices []Device) string {
	texts := make([]string, len(devices))
	for i, d := range devices {
		texts[i] = d.String()
	}
	return strings.Join(texts, ", ")
}

// some lists the first workers of a group and the number of the others.
func some(workers []string) string {
	const shown = 8
	var texts []string
	for _, name := range workers[:min(shown, len(workers))] {
		texts = append(texts, strconv.Quote(name))
	}
	if more := len(workers) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
