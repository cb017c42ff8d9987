package pystack

import "bytes"

// maxCodes bounds the code objects that a reader remembers. A program that makes code all the time would fill memory.
const maxCodes = 8192

// code is a code object that was read. Its strings are kept from one dump to the next.
type code struct {
	file, name text
	lines      []byte
	first      int
	size       uint64 // of the instructions in bytes, 0 if unknown

	// offset and line are those of the last use of lines.
	offset, line int
}

// readCode reads the code object at an address. It reads all of the object again in each dump, because another object
// can have taken its address; only what it decoded is kept.
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
		now.size = unit * word(head, sizeOffset)
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

// same says whether two reads of a code object, or none, have the same content.
func (c *code) same(as *code) bool {
	return as != nil && c.first == as.first && c.size == as.size &&
		c.file.value == as.file.value && c.name.value == as.name.value && bytes.Equal(c.lines, as.lines)
}
