package stacks

import (
	"slices"

	"github.com/elasticrun/elasticrun/pkg/pystack"
)

// Worker is what one worker was doing when its agent looked.
type Worker struct {
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	// PythonPID is the process whose threads these are: the worker, or the nearest of its descendants that is Python. 0
	// if there is none.
	PythonPID int `json:"python_pid,omitempty"`
	// Python is the version of Python, such as "3.11.2"; "" if it is not known.
	Python string `json:"python,omitempty"`
	// State is what the kernel says of the main thread, such as "running", "sleeping", "disk sleep", "stopped" or
	// "zombie"; "" if the process is gone, and Exited if its agent has reaped it after an exit with code 0. Wait is the
	// kernel function in which the main thread sleeps; "" if that is not known.
	State string `json:"state,omitempty"`
	Wait  string `json:"wait,omitempty"`
	// Threads are the Python threads, the main one first. They are empty if Problem says why they cannot be read.
	Threads []Thread `json:"threads,omitempty"`
	Problem string   `json:"problem,omitempty"`
	// Children are up to 16 processes below PythonPID, the nearest first, if all threads were asked for.
	Children []Child `json:"children,omitempty"`
	// Life is what the worker's agent has seen of it; nil if the agent looks for no signs of life.
	Life *Life `json:"life,omitempty"`
}

// Thread is a Python thread, as [pystack.Thread] describes it.
type Thread struct {
	ID     int     `json:"id"`
	Name   string  `json:"name,omitempty"`
	Frames []Frame `json:"frames"`
	// Changed says that the thread called or returned while it was read.
	Changed bool `json:"changed,omitempty"`
}

// Frame is one call, as [pystack.Frame] describes it.
type Frame struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
}

// Ended reports whether the worker had ended when it was read.
func (w Worker) Ended() bool { return w.State == "zombie" || w.Problem == problemEnded }

// equal reports whether two workers do the same: their main threads have equal frames, or all threads and children.
// Workers without frames do the same if they have none for the same reason, in the same state.
func (w Worker) equal(other Worker, allThreads bool) bool {
	if w.Problem != other.Problem || !slices.Equal(w.Frames(), other.Frames()) {
		return false
	}
	if len(w.Frames()) == 0 && (w.State != other.State || w.Wait != other.Wait) {
		return false
	}
	sameThread := func(a, b Thread) bool { return a.Name == b.Name && slices.Equal(a.Frames, b.Frames) }
	return !allThreads || slices.EqualFunc(w.Threads, other.Threads, sameThread) &&
		slices.EqualFunc(w.Children, other.Children, Child.sameAs)
}

func threadOf(t pystack.Thread) Thread {
	frames := make([]Frame, len(t.Frames))
	for i, f := range t.Frames {
		frames[i] = Frame(f)
	}
	return Thread{ID: t.ID, Name: t.Name, Frames: frames, Changed: t.Changed}
}
