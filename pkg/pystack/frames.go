package pystack

import "errors"

// maxFrames bounds the frames of a thread. Python's own limit for recursion is 1,000 unless a program raises it.
const maxFrames = 10_000

// maxAttempts is how often a thread, or the list of threads, is read until it does not change meanwhile.
const maxAttempts = 10

// stack is what was read of a thread's frames.
type stack struct {
	frames    []Frame
	changed   bool
	truncated bool
}

// readStack reads the frames of a thread state, innermost first. A thread that calls and returns all the time never
// holds still; then the last attempt that made sense counts, and changed is set.
func (r *reader) readStack(s threadState) (stack, error) {
	var best stack
	failed := errTorn
	for range maxAttempts {
		got, top, err := r.tryStack(s)
		switch {
		case errors.Is(err, ErrExited), isUnsupported(err):
			return stack{}, err
		case err != nil:
			if failed == errTorn {
				failed = err
			}
			r.forget()
			continue
		}
		best, failed = got, nil
		if again, err := r.topFrame(s); err == nil && again == top {
			return best, nil
		}
		best.changed = true
		r.stack.reset()
	}
	return best, failed
}

// top is the innermost frame of a thread, and how it looked.
type top struct {
	frame, code, previous uint64
}

// topFrame reads, past the snapshots, which frame is the innermost one.
func (r *reader) topFrame(s threadState) (top, error) {
	l := r.layout
	owner, err := readWord(r.mem, s.addr+l.threadInterpreter)
	if err != nil {
		return top{}, err
	}
	if owner != s.interpreter {
		return top{}, errTorn // the thread state was freed
	}
	var t top
	if t.frame, err = readWord(r.mem, s.addr+l.threadFrame); err != nil {
		return top{}, err
	}
	if l.frames == chainedFrames && t.frame != 0 {
		if t.frame, err = readWord(r.mem, t.frame+l.current); err != nil {
			return top{}, err
		}
	}
	if t.frame == 0 {
		return t, nil
	}
	if t.code, err = readWord(r.mem, t.frame+l.frameCode); err != nil {
		return top{}, err
	}
	t.previous, err = readWord(r.mem, t.frame+l.framePrevious)
	return t, err
}

// tryStack reads the frames once.
func (r *reader) tryStack(s threadState) (stack, top, error) {
	r.stack.reset()
	innermost, err := r.topFrame(s)
	if err != nil {
		return stack{}, top{}, err
	}
	var got stack
	// A chain that does not end has a frame twice. Brent's algorithm: compare with the frame at the last power of two.
	seen, power := uint64(0), 1
	for addr, i := innermost.frame, 0; addr != 0; i++ {
		if addr == seen {
			return stack{}, top{}, errTorn
		}
		if i == power {
			seen, power = addr, power*2
		}
		if len(got.frames) == maxFrames {
			got.truncated = true
			break
		}
		f, isCall, previous, err := r.readFrame(addr)
		if err != nil {
			return stack{}, top{}, err
		}
		if isCall {
			got.frames = append(got.frames, f)
		}
		addr = previous
	}
	return got, innermost, nil
}

// readFrame reads one frame. isCall is false for a frame that is no call of a Python function.
func (r *reader) readFrame(addr uint64) (f Frame, isCall bool, previous uint64, err error) {
	l := r.layout
	b, err := r.stack.view(addr, max(l.framePrevious, l.frameCode, l.frameInstruction, l.frameOwner)+8)
	if err != nil {
		return Frame{}, false, 0, err
	}
	previous = word(b, l.framePrevious)
	if l.firstShim != 0 && b[l.frameOwner] >= l.firstShim {
		return Frame{}, false, previous, nil
	}
	instruction := word(b, l.frameInstruction)
	// From 3.14 on the lowest bits say who counts the reference (Include/internal/pycore_stackref.h).
	const tags = 3
	codeAt := word(b, l.frameCode) &^ tags
	c, err := r.readCode(codeAt)
	if err != nil {
		return Frame{}, false, 0, err
	}
	offset, err := r.offset(c, codeAt, instruction)
	if err != nil {
		return Frame{}, false, 0, err
	}
	if offset != c.offset || c.offset < 0 {
		c.offset, c.line = offset, lineAt(l.lines, c.lines, c.first, offset)
	}
	return Frame{File: c.file.value, Line: c.line, Function: c.name.value}, true, previous, nil
}

// offset returns how far into the instructions of a code object a frame is, in bytes; -1 before the first one.
func (r *reader) offset(c *code, codeAt, instruction uint64) (int, error) {
	if r.layout.frames == objectFrames {
		// f_lasti is an int: bytes in 3.9, instructions in 3.10.
		index := int(int32(uint32(instruction)))
		if index < -1 {
			return 0, errTorn
		}
		if r.layout.lines == lineRanges && index > 0 {
			index *= unit
		}
		return index, nil
	}
	offset := int64(instruction - codeAt - r.layout.codeStart)
	if offset < -unit || offset >= int64(c.size) {
		return 0, errTorn
	}
	return int(max(offset, -1)), nil
}
