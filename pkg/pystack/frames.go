package pystack

import (
	"errors"
	"maps"
)

// maxFrames bounds the frames of a thread. Python's own limit for recursion is 1,000 unless a program raises it.
const maxFrames = 10_000

// maxAttempts is how often a thread, or the list of threads, is read until it does not change meanwhile.
const maxAttempts = 10

// stack has the frames that were read of a thread.
type stack struct {
	frames    []Frame
	changed   bool
	truncated bool
}

// readStack reads the frames of a thread state, innermost first, until two reads in a row are the same. One read is not
// enough: between the reads of a frame and its code object, or of a code object and its name, the thread may return and
// the memory be reused. If no two reads in a row are the same, readStack returns the proven frames, and sets changed.
func (r *reader) readStack(s threadState) (stack, error) {
	r.forget()
	clear(r.before)
	r.calls = r.calls[:0]
	var best, last stack
	failed, again := errTorn, false
	for range maxAttempts {
		r.calls, r.last = r.last[:0], r.calls
		got, err := r.readOnce(s)
		switch {
		case errors.Is(err, ErrExited), isUnsupported(err):
			return stack{}, err
		case err != nil:
			if errors.Is(failed, errTorn) { // err says more
				failed = err
			}
			again = false
			continue
		case again && r.same(last.frames, got.frames):
			return got, nil
		}
		if proven := r.proven(got.frames); proven > 0 || best.frames == nil {
			best, failed = got, nil
			best.frames, best.changed = got.frames[len(got.frames)-proven:], true
		}
		maps.Copy(r.before, r.seen)
		last, again = got, true
	}
	return best, failed
}

// readOnce reads all frames, and then their code objects.
func (r *reader) readOnce(s threadState) (stack, error) {
	var got stack
	var err error
	r.stack.refresh()
	if r.calls, got.truncated, err = r.walk(r.calls[:0], s); err != nil {
		return stack{}, err
	}
	r.objects.refresh()
	clear(r.seen)
	got.frames = make([]Frame, len(r.calls))
	for i, c := range r.calls {
		if got.frames[i], err = r.decode(c); err != nil {
			return stack{}, err
		}
	}
	return got, nil
}

// same reports whether the last two reads, with these results, found the same stack. The innermost function may be at
// another line.
func (r *reader) same(last, now []Frame) bool {
	if len(last) != len(now) {
		return false
	}
	for i, c := range r.calls {
		was := r.last[i]
		if i > 0 && last[i].Line != now[i].Line {
			return false
		}
		if c.frame != was.frame || c.code != was.code || !r.seen[c.code].same(r.before[c.code]) {
			return false
		}
	}
	return true
}

// proven returns how many of the outer frames have code objects that an earlier read of this thread found the same. A
// code object that was read only once may be another object in the same memory.
func (r *reader) proven(now []Frame) int {
	for i := range now {
		outer := len(now) - 1 - i
		if code := r.calls[outer].code; !r.seen[code].same(r.before[code]) {
			return i
		}
	}
	return len(now)
}

// topFrame reads the address of a thread's innermost frame, not from a snapshot; 0 for none.
func (r *reader) topFrame(s threadState) (uint64, error) {
	l := r.layout
	owner, err := readWord(r.mem, s.addr+l.threadInterpreter)
	if err != nil {
		return 0, err
	}
	if owner != s.interpreter {
		return 0, errTorn // the thread state was freed
	}
	top, err := readWord(r.mem, s.addr+l.threadFrame)
	if err != nil || top == 0 || l.frames != chainedFrames {
		return top, err
	}
	return readWord(r.mem, top+l.current)
}

// call is a frame that was read but not decoded.
type call struct {
	frame, code, instruction uint64
}

// walk appends the frames of a thread to calls, from the innermost one on. It omits frames that are no calls of Python
// functions.
//
// The outermost frame was called by C code. A chain that ends otherwise was being changed, even if several reads find
// it: when 3.11 and 3.12 begin to evaluate a frame, the thread state refers for some instructions to a _PyCFrame whose
// frame is not set yet, and the kernel may suspend the thread there.
func (r *reader) walk(calls []call, s threadState) (_ []call, truncated bool, err error) {
	l := r.layout
	size := max(l.framePrevious, l.frameCode, l.frameInstruction, l.frameOwner) + 8
	addr, err := r.topFrame(s)
	if err != nil {
		return calls, false, err
	}
	// A chain that does not end repeats a frame. Brent's algorithm: compare with the frame at the last power of two.
	seen, power, fromC := uint64(0), 1, true
	for i := 0; addr != 0; i++ {
		if addr == seen || i > 2*maxFrames {
			return calls, false, errTorn
		}
		if i == power {
			seen, power = addr, power*2
		}
		if len(calls) == maxFrames {
			return calls, true, nil
		}
		b, err := r.stack.view(addr, size)
		if err != nil {
			return calls, false, err
		}
		shim := l.firstShim != 0 && b[l.frameOwner] >= l.firstShim
		fromC = shim || l.frames == objectFrames || l.frameEntry != 0 && b[l.frameEntry] != 0
		if !shim {
			// From 3.14 on, the lowest bits are flags of reference counting (Include/internal/pycore_stackref.h).
			const tags = 3
			code := word(b, l.frameCode) &^ tags
			calls = append(calls, call{frame: addr, code: code, instruction: word(b, l.frameInstruction)})
		}
		addr = word(b, l.framePrevious)
	}
	if !fromC {
		return calls, false, errTorn
	}
	return calls, false, nil
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
			index *= instructionSize
		}
		return index, nil
	}
	offset := int64(f.instruction - f.code - r.layout.codeStart)
	if offset < -instructionSize || offset >= int64(c.size) {
		return 0, errTorn
	}
	return int(max(offset, -1)), nil
}
