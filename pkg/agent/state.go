package agent

import (
	"fmt"
	"slices"
)

// WorkerState is the state of a worker group; workers change state as a unit
// (seed 002).
type WorkerState int

// The states of seed 002.
const (
	// Unknown: the agent lost track of the group; it cannot recover.
	Unknown WorkerState = iota
	// Init: the group exists and was not started yet.
	Init
	// Healthy: workers run.
	Healthy
	// Unhealthy: workers run, but something is wrong with them. This agent takes
	// such a group for failed.
	Unhealthy
	// Stopped: workers were stopped by the agent, to be started again or to end.
	Stopped
	// Succeeded: all workers exited with 0.
	Succeeded
	// Failed: some worker did not.
	Failed
)

// String returns the state's name in seed 002.
func (s WorkerState) String() string {
	names := [...]string{"UNKNOWN", "INIT", "HEALTHY", "UNHEALTHY", "STOPPED", "SUCCEEDED", "FAILED"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("WorkerState(%d)", int(s))
	}
	return names[s]
}

// transitions lists where each state may lead. Every state may become Unknown,
// which leads nowhere.
func transitions(from WorkerState) []WorkerState {
	switch from {
	case Init:
		return []WorkerState{Healthy, Stopped, Succeeded, Failed} // the job ended without this node
	case Healthy, Unhealthy:
		return []WorkerState{Healthy, Unhealthy, Stopped, Succeeded, Failed}
	case Failed:
		return []WorkerState{Stopped}
	case Succeeded:
		return []WorkerState{Stopped, Succeeded, Failed} // a failure elsewhere restarts all, or ends the job
	case Stopped:
		return []WorkerState{Healthy, Stopped, Succeeded, Failed} // no round follows: the job has ended
	default:
		return nil
	}
}

// StateError says that a worker group cannot go from one state to another. It is
// a defect of the agent.
type StateError struct{ From, To WorkerState }

func (e *StateError) Error() string {
	return fmt.Sprintf("worker group cannot go from %v to %v", e.From, e.To)
}

// next returns the state to if from may lead there, else Unknown and an error.
func next(from, to WorkerState) (WorkerState, error) {
	if to == Unknown || slices.Contains(transitions(from), to) {
		return to, nil
	}
	return Unknown, &StateError{From: from, To: to}
}
