package device

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What Validate finds, each by itself. A [*MapError] holds one of them.
var (
	// ErrDuplicateDevices: a worker declares a device more than once.
	ErrDuplicateDevices = errors.New("declared more than once")
	// ErrInvalidDevices: a worker declares devices that it does not have.
	ErrInvalidDevices = errors.New("declared devices do not exist")
	// ErrUnknownTarget: a map is for somebody who is not in the static group.
	ErrUnknownTarget = errors.New("no worker of the group has that name")
	// ErrDuplicateTargets: a map gives a target device to more than one source device.
	ErrDuplicateTargets = errors.New("target devices have more than one source")
	// ErrUnexpectedSources: a map starts from devices that its worker, which declares some, does not declare.
	ErrUnexpectedSources = errors.New("source devices are not declared")
	// ErrInvalidSources: a map starts from devices that its worker, which declares none, does not have.
	ErrInvalidSources = errors.New("source devices do not exist")
	// ErrUnexpectedTargets: a map leads to devices that the target, which declares some, does not declare.
	ErrUnexpectedTargets = errors.New("target devices are not declared")
	// ErrInvalidTargets: a map leads to devices that the target, which declares none, does not have.
	ErrInvalidTargets = errors.New("target devices do not exist")
)

// MapError says which worker has told what that cannot be, of its devices or of the map for a target.
type MapError struct {
	// Err is one of the errors above.
	Err error
	// Worker has told it.
	Worker string
	// Target is who the map is for, and Map that map; "" and nil if it is about the devices that Worker declares.
	Target string
	Map    Map
	// Wrong are the devices that it is about, in order; none for ErrUnknownTarget.
	Wrong []Device
	// Devices and Count are what Wrong was held against: what the worker whose devices they are, Worker or Target, declares,
	// and how many GPUs it has.
	Devices []Device
	Count   int
	// Known are the group's names in its own order, for ErrUnknownTarget.
	Known []string
}

// because returns a copy with the error and the devices that it is about.
func (e MapError) because(err error, wrong []Device) *MapError {
	e.Err, e.Wrong = err, wrong
	return &e
}

func (e *MapError) Unwrap() error { return e.Err }

// Error says who, which devices, of how many, and what to do, in one line that is always the same.
func (e *MapError) Error() string {
	about, advice := e.about()
	text := fmt.Sprintf("worker %q: %s: %v", e.Worker, about, e.Err)
	if len(e.Wrong) > 0 {
		text += ": " + list(e.Wrong)
	}
	return text + "; " + advice
}

// about returns what the error is about, and what to do.
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

// existing says which devices a worker with this many GPUs has.
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

// some names the first of the workers of a group, since the line is for people, and says how many more there are.
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
