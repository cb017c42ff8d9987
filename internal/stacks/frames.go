package stacks

import (
	"slices"
	"strconv"
)

// Frames returns the calls of the main thread, innermost first.
func (w Worker) Frames() []Frame {
	if len(w.Threads) == 0 {
		return nil
	}
	return w.Threads[0].Frames
}

// UserFrame returns the innermost call of the main thread that is not in a library, else its innermost call; false if
// the main thread has no frames.
func (w Worker) UserFrame() (Frame, bool) {
	frames := w.Frames()
	if len(frames) == 0 {
		return Frame{}, false
	}
	return frames[max(0, slices.IndexFunc(frames, func(f Frame) bool { return !f.IsLibrary() }))], true
}

// IsLibrary reports whether the call is in Python's own code or in an installed package.
func (f Frame) IsLibrary() bool { return isLibrary(f.File) }

// Ranks names ranks: "rank 3" or "ranks 0-2, 5".
func Ranks(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + strconv.Itoa(ranks[0])
	}
	return "ranks " + ranges(ranks)
}
