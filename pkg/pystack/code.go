package pystack

import "bytes"

// maxCodes bounds the code objects that a reader remembers, because a program may make code objects all the time.
const maxCodes = 8192

// code is a decoded code object. It is kept from one dump to the next.
type code struct {
	file, name text
	lines      []byte
	first      int
	size       uint64 // of the instructions in bytes, 0 if unknown

	// offset and line cache the last result of lineAt.
	offset, line int
}

// readCode reads the code object at an address. Each dump reads the whole object again, because another object may have
// taken the address; only the decoded strings are reused.
func (r *reader) readCode(addr uint64) (*code, error) {
	if c, ok := r.seen[addr]; ok {
		return c, nil
	}
	l := r.layout
	head, err := r.objects.view(addr, max(l.codeLines, l.codeName, l.codeFile, l.codeFirstLine)+8)
	if err != nil {
		return nil, err
	}
	if err := r.checkType(word(head, l.objectType)); err != nil {
		return nil, err
	}
	file, name, lines := word(head, l.codeFile), word(head, l.codeName), word(head, l.codeLines)
	now := code{first: int(int32(half(head, l.codeFirstLine)))}
	if l.codeStart != 0 {
		now.size = instructionSize * word(head, sizeOffset)
	}
	old := r.codes[addr]
	if old == nil {
		old = &code{}
	}
	if now.file, err = r.readText(file, old.file); err != nil {
		return nil, err
	}
	if now.name, err = r.readText(name, old.name); err != nil {
		return nil, err
	}
	if now.lines, err = r.readBytes(lines, old.lines); err != nil {
		return nil, err
	}
	now.offset, now.line = -1, now.first
	if old.first == now.first && bytes.Equal(old.lines, now.lines) {
		now.offset, now.line = old.offset, old.line
	}
	if len(r.codes) >= maxCodes {
		clear(r.codes)
	}
	r.codes[addr], r.seen[addr] = &now, &now
	return &now, nil
}

// same reports whether two reads of a code object have the same content. It is false if as is nil.
func (c *code) same(as *code) bool {
	return as != nil && c.first == as.first && c.size == as.size &&
		c.file.value == as.file.value && c.name.value == as.name.value && bytes.Equal(c.lines, as.lines)
}
