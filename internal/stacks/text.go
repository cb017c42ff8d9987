package stacks

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// maxLocated is how many workers of a group are shown with their hosts and pids.
const maxLocated = 3

// Text shows the groups to people, each with the frames of its first worker, innermost first. With allThreads it shows
// the other threads too.
func Text(groups []Group, allThreads bool) string {
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteString("\n")
		}
		g.write(&b, allThreads)
	}
	return b.String()
}

func (g Group) write(b *strings.Builder, allThreads bool) {
	w := g.Workers[0]
	fmt.Fprintf(b, "%s%s\n", g.who(), doing(w.State, w.Wait)+signs(g.Workers))
	if w.Problem != "" {
		fmt.Fprintf(b, "    no Python stack: %s\n", printable.Line(w.Problem))
	}
	writeFrames(b, w.Frames())
	if !allThreads {
		return
	}
	for _, t := range w.Threads[min(1, len(w.Threads)):] {
		fmt.Fprintf(b, "  thread %d, %s\n", t.ID, printable.Line(t.Name))
		writeFrames(b, t.Frames)
	}
	for _, c := range w.Children {
		fmt.Fprintf(b, "  process %d, %s%s\n", c.PID, printable.Line(c.Name), doing(c.State, c.Wait))
		writeFrames(b, c.Frames)
	}
}

// who names the workers: up to maxLocated with their hosts and pids, more by their number and ranks.
func (g Group) who() string {
	if n := len(g.Workers); n > maxLocated {
		return fmt.Sprintf("%d ranks, %s", n, g.Ranks())
	}
	texts := make([]string, len(g.Workers))
	for i, w := range g.Workers {
		texts[i] = fmt.Sprintf("rank %d on %s (pid %d)", w.Rank, printable.Line(w.Host), cmp.Or(w.PythonPID, w.PID))
	}
	return strings.Join(texts, ", ")
}

// doing returns what the kernel says of a process, to follow its name: its state, and where it sleeps.
func doing(state, wait string) string {
	switch {
	case state == "":
		return ""
	case wait == "":
		return ": " + state
	}
	return fmt.Sprintf(": %s in %s", state, printable.Line(wait))
}

// maxInner and maxOuter are how many of the innermost and of the outermost frames of a deep stack are shown.
const (
	maxInner = 40
	maxOuter = 10
)

func writeFrames(b *strings.Builder, frames []Frame) {
	omitted := len(frames) - maxInner - maxOuter
	for i, f := range frames {
		if omitted > 1 && i == maxInner {
			fmt.Fprintf(b, "    ... %d more calls ...\n", omitted)
		}
		if omitted > 1 && i >= maxInner && i < maxInner+omitted {
			continue
		}
		fmt.Fprintf(b, "    %s (%s:%d)\n", printable.Line(f.Function), printable.Line(f.File), f.Line)
	}
}
