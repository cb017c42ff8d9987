package pystack

// lineFormat is a form of the table that maps a code object's instructions to lines.
type lineFormat int

const (
	// lnotab has pairs of increments: of the offset in bytes, and of the line (CPython 3.9, Objects/lnotab_notes.txt).
	lnotab lineFormat = iota
	// lineRanges has pairs of a range's length in bytes and the increment to its line, which may have none (CPython 3.10,
	// Objects/lnotab_notes.txt).
	lineRanges
	// locations has entries of several bytes, with columns (CPython 3.11, Objects/locations.md; later
	// InternalDocs/code_objects.md).
	locations
)

// instructionSize is the size of an instruction in bytes.
const instructionSize = 2

// lineAt returns the line of the instruction at an offset in bytes. It is first for an offset before the first
// instruction, and 0 where the table has no line, such as for code that the compiler added.
func lineAt(format lineFormat, table []byte, first, offset int) int {
	if offset < 0 {
		return first
	}
	switch format {
	case lnotab:
		return lineOfNotab(table, first, offset)
	case lineRanges:
		return lineOfRanges(table, first, offset)
	case locations:
		return lineOfLocations(table, first, offset)
	}
	return 0
}

func lineOfNotab(table []byte, line, offset int) int {
	for at := 0; len(table) >= 2; table = table[2:] {
		if at += int(table[0]); at > offset {
			break
		}
		line += int(int8(table[1]))
	}
	return line
}

func lineOfRanges(table []byte, line, offset int) int {
	const none = -128
	for end := 0; len(table) >= 2; table = table[2:] {
		step := int(int8(table[1]))
		if step != none {
			line += step
		}
		if end += int(table[0]); end <= offset {
			continue
		}
		if step == none {
			return 0
		}
		return line
	}
	return 0
}

// The codes of entries in a location table, in bits 3 to 6 of an entry's first byte. Codes below oneLine are short
// forms on the same line; those from oneLine to noColumns-1 add their number to the line.
const (
	oneLine    = 10
	noColumns  = 13
	long       = 14
	noLocation = 15
)

func lineOfLocations(table []byte, line, offset int) int {
	for end := 0; len(table) > 0; {
		head := table[0]
		code := head >> 3 & 15
		switch {
		case code == noColumns, code == long:
			line += signedVarint(table[1:])
		case code >= oneLine && code < noColumns:
			line += int(code - oneLine)
		}
		// Bits 0 to 2 are the number of instructions less one.
		if end += instructionSize * (int(head&7) + 1); end > offset {
			if code == noLocation {
				return 0
			}
			return line
		}
		// Only the first byte of an entry has its highest bit set.
		for table = table[1:]; len(table) > 0 && table[0]&0x80 == 0; {
			table = table[1:]
		}
	}
	return 0
}

// signedVarint decodes a number of a location table: groups of 6 bits, the lowest first, each but the last with bit 6
// set. Bit 0 of the number is its sign.
func signedVarint(b []byte) int {
	const group, more = 6, 1 << 6
	var n uint64
	for i := 0; i < len(b) && i*group < 32; i++ {
		n |= uint64(b[i]&(more-1)) << (i * group)
		if b[i]&more == 0 {
			break
		}
	}
	if n&1 == 1 {
		return -int(n >> 1)
	}
	return int(n >> 1)
}
