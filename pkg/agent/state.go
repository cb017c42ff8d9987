package agent

import (
	"fmt"
	"slices"
)

// WorkerState is the state of a worker group, like WorkerState of torch 2.14
// (torch/distributed/elastic/agent/server/api.py). All workers of a group change state together.
type WorkerState int

// The states.
const (
	// Unknown means that the agent has lost track of the group and cannot recover.
	Unknown WorkerState = iota
	// Init means that the group has not been started.
	Init
	// Healthy means that the workers run.
	Healthy
	// Unhealthy means that the workers run but have a problem. This agent never uses it: such a group counts as failed.
	Unhealthy
	// Stopped means that the agent has stopped the workers, to start them again or to end.
	Stopped
	// Succeeded means that all workers exited with 0.
	Succeeded
	// Failed means that a worker did not exit with 0.
	Failed
)

// String returns torch's name of the state.
func (s WorkerState) String() string {
	names := [...]string{"UNKNOWN", "INIT", "HEALTHY", "UNHEALTHY", "STOPPED", "SUCCEEDED", "FAILED"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("WorkerState(%d)", int(s))
	}
	return names[s]
}

// IsRunning reports whether the workers of a group in this state run, like is_running of torch's WorkerState.
func (s WorkerState) IsRunning() bool { return s == Healthy || s == Unhealthy }

// transitions returns the states that may follow from. Unknown may follow every state; nothing follows Unknown.
func transitions(from WorkerState) []WorkerState {
	switch from {
	case Init:
		return []WorkerState{Healthy, Stopped, Succeeded, Failed} // the job may end without this node
	case Healthy, Unhealthy:
		return []WorkerState{Healthy, Unhealthy, Stopped, Succeeded, Failed}
	case Failed:
		return []WorkerState{Stopped}
	case Succeeded:
		return []WorkerState{Stopped, Succeeded, Failed} // a failure on another node restarts all workers or ends the job
	case Stopped:
		return []WorkerState{Healthy, Stopped, Succeeded, Failed} // the job may have ended
	default:
		return nil
	}
}

// StateError reports a transition that is not allowed. It is a defect of the agent.
type StateError struct{ From, To WorkerState }

func (e *StateError) Error() string {
	return fmt.Sprintf("worker group cannot go from %v to %v", e.From, e.To)
}

// next returns to if it may follow from, else Unknown and an error.
func next(from, to WorkerState) (WorkerState, error) {
	if to == Unknown || slices.Contains(transitions(from), to) {
		return to, nil
	}
	return Unknown, &StateError{From: from, To: to}
}
