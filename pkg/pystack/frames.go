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
			continue
		}
		best, failed = got, nil
		if again, err := r.topFrame(s); err == nil && again == top {
			return best, nil
		}
		best.changed = true
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

// tryStack reads the frames once: first all frames, then their code objects. While a frame is there its code object is
// too, so if the innermost frame is the same afterwards, all code objects were valid.
func (r *reader) tryStack(s threadState) (stack, top, error) {
	r.forget()
	innermost, err := r.topFrame(s)
	if err != nil {
		return stack{}, top{}, err
	}
	calls, truncated, err := r.walk(innermost.frame)
	if err != nil {
		return stack{}, top{}, err
	}
	frames := make([]Frame, len(calls))
	for i, c := range calls {
		if frames[i], err = r.decode(c); err != nil {
			return stack{}, top{}, err
		}
	}
	return stack{frames: frames, truncated: truncated}, innermost, nil
}

// call is a frame that was read and not decoded.
type call struct {
	code, instruction uint64
}

// walk reads the frames from the innermost one on. The result is valid until the next call.
func (r *reader) walk(addr uint64) (calls []call, truncated bool, err error) {
	l := r.layout
	size := max(l.framePrevious, l.frameCode, l.frameInstruction, l.frameOwner) + 8
	r.calls = r.calls[:0]
	// A chain that does not end has a frame twice. Brent's algorithm: compare with the frame at the last power of two.
	seen, power := uint64(0), 1
	for i := 0; addr != 0; i++ {
		if addr == seen || i > 2*maxFrames {
			return nil, false, errTorn
		}
		if i == power {
			seen, power = addr, power*2
		}
		if len(r.calls) == maxFrames {
			return r.calls, true, nil
		}
		b, err := r.stack.view(addr, size)
		if err != nil {
			return nil, false, err
		}
		addr = word(b, l.framePrevious)
		if l.firstShim != 0 && b[l.frameOwner] >= l.firstShim {
			continue // no call of a Python function
		}
		// From 3.14 on the lowest bits say who counts the reference (Include/internal/pycore_stackref.h).
		const tags = 3
		r.calls = append(r.calls, call{code: word(b, l.frameCode) &^ tags, instruction: word(b, l.frameInstruction)})
	}
	return r.calls, false, nil
}

// decode reads the code object of a frame.
func (r *reader) decode(f call) (Frame, error) {
	c, err := r.readCode(f.code)
	if err != nil {
		return Frame{}, err
	}
	offset, err := r.offset(c, f)
	if err != nil {
		return Frame{}, err
	}
	if offset != c.offset {
		c.offset, c.line = offset, lineAt(r.layout.lines, c.lines, c.first, offset)
	}
	return Frame{File: c.file.value, Line: c.line, Function: c.name.value}, nil
}

// offset returns how far into the instructions of a code object a frame is, in bytes; -1 before the first one.
func (r *reader) offset(c *code, f call) (int, error) {
	if r.layout.frames == objectFrames {
		// f_lasti is an int: bytes in 3.9, instructions in 3.10.
		index := int(int32(uint32(f.instruction)))
		if index < -1 {
			return 0, errTorn
		}
		if r.layout.lines == lineRanges && index > 0 {
			index *= unit
		}
		return index, nil
	}
	offset := int64(f.instruction - f.code - r.layout.codeStart)
	if offset < -unit || offset >= int64(c.size) {
		return 0, errTorn
	}
	return int(max(offset, -1)), nil
}
