package pystack

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

const (
	// maxText bounds names and paths, in code points. Longer ones are cut.
	maxText = 4096
	// maxLineTable bounds a code object's table of lines, in bytes. A module of 100,000 lines has about 1 MB.
	maxLineTable = 8 << 20
)

// text is a str object that was read.
type text struct {
	kind  uint32 // bytes in a code point
	raw   []byte
	value string
}

// readText reads the str object at an address. It returns old, and allocates nothing, if that has the same content.
func (r *reader) readText(addr uint64, old text) (text, error) {
	l := r.layout
	head, err := r.objects.view(addr, max(l.textLength+8, l.textState+4))
	if err != nil {
		return text{}, err
	}
	// Bits 0 and 1 say whether the string is interned, 2 to 4 are kind, 5 says that the text follows the object, 6 that
	// it is ASCII (Include/cpython/unicodeobject.h).
	state := half(head, l.textState)
	length, kind := word(head, l.textLength), state>>2&7
	compact, ascii := state>>5&1 == 1, state>>6&1 == 1
	if (kind != 1 && kind != 2 && kind != 4) || int64(length) < 0 {
		return text{}, errTorn
	}
	at := addr + l.compactSize
	switch {
	case !compact: // an object of a subclass of str has a pointer to its text
		if at, err = readWord(r.objects, at); err != nil {
			return text{}, err
		}
	case ascii:
		at = addr + l.asciiSize
	}
	raw, err := r.objects.view(at, min(length, maxText)*uint64(kind))
	if err != nil {
		return text{}, err
	}
	if old.kind == kind && bytes.Equal(old.raw, raw) {
		return old, nil
	}
	return text{kind: kind, raw: bytes.Clone(raw), value: decodeText(raw, kind)}, nil
}

// decodeText returns code points of kind bytes each as UTF-8. An invalid one becomes U+FFFD.
func decodeText(raw []byte, kind uint32) string {
	out := make([]byte, 0, len(raw))
	for ; len(raw) >= int(kind); raw = raw[kind:] {
		var c uint32
		switch kind {
		case 1:
			c = uint32(raw[0])
		case 2:
			c = uint32(binary.LittleEndian.Uint16(raw))
		default:
			c = binary.LittleEndian.Uint32(raw)
		}
		out = utf8.AppendRune(out, rune(min(c, utf8.MaxRune+1)))
	}
	return string(out)
}

// readBytes reads the bytes object at an address, and returns old if it has the same content. It returns nothing for
// one that is too long.
func (r *reader) readBytes(addr uint64, old []byte) ([]byte, error) {
	l := r.layout
	head, err := r.objects.view(addr, l.bytesSize+8)
	if err != nil {
		return nil, err
	}
	size := word(head, l.bytesSize)
	switch {
	case int64(size) < 0:
		return nil, errTorn
	case size > maxLineTable:
		return nil, nil
	}
	raw, err := r.objects.view(addr+l.bytesData, size)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(old, raw) {
		return old, nil
	}
	return bytes.Clone(raw), nil
}
