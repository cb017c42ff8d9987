package stacks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/pystack"
)

const (
	// maxChildren is how many processes below a worker are read. Large data loaders have more, which do the same.
	maxChildren = 16
	// childrenTime bounds how long that takes, so that the worker's own stacks are still returned in time.
	childrenTime = 200 * time.Millisecond
)

// Child is a process below a worker, such as one of a data loader.
type Child struct {
	PID   int    `json:"pid"`
	Name  string `json:"name"` // the kernel's name of the process
	State string `json:"state,omitempty"`
	Wait  string `json:"wait,omitempty"`
	// Frames are the calls of its main thread, innermost first; empty if it is not Python or cannot be read.
	Frames []Frame `json:"frames,omitempty"`
}

// readChildren returns the first maxChildren processes below a worker's Python process.
func readChildren(python int) []Child {
	below := descendants(python, 1+maxChildren)[1:]
	end := time.Now().Add(childrenTime)
	var children []Child
	for _, pid := range below {
		if time.Now().After(end) {
			break
		}
		c := Child{PID: pid, Name: processName(pid)}
		c.State, c.Wait = kernelState(pid)
		if p, err := pystack.Open(pid); err == nil {
			if main, err := p.MainThread(); err == nil {
				c.Frames = threadOf(main).Frames
			}
		}
		children = append(children, c)
	}
	// This process does not reap them, so a pid can have become another process's meanwhile.
	still := descendants(python, maxProcesses)
	return slices.DeleteFunc(children, func(c Child) bool { return c.State == "" || !slices.Contains(still, c.PID) })
}

// Working says where a child is in code of the user's, such as "in decode, data.py:12"; "" if it is in none, as while
// it waits for work.
func (c Child) Working() string {
	for _, f := range c.Frames {
		switch {
		// The callers of this frame are those of the parent: the child was forked with its stack.
		case strings.HasSuffix(f.File, "/multiprocessing/process.py") && strings.HasSuffix(f.Function, "_bootstrap"):
			return ""
		case !f.IsLibrary() && !strings.HasPrefix(f.File, "<"):
			return f.where()
		}
	}
	return ""
}

// String names the child and says what it does.
func (c Child) String() string {
	name := fmt.Sprintf("process %d (%s)", c.PID, printable.Line(c.Name))
	if where := c.Working(); where != "" {
		return name + " is " + where
	}
	return name + doing(c.State, c.Wait)
}

// sameAs reports whether two children do the same.
func (c Child) sameAs(other Child) bool {
	return c.Name == other.Name && c.State == other.State && slices.Equal(c.Frames, other.Frames)
}
