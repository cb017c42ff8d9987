package pystack

import (
	"bytes"
	"errors"
	"io"
)

const (
	// maxSections bounds a table that has about 40 entries.
	maxSections = 4096
	// maxTable bounds a table of symbols or names. The largest known, of a program with all of Python and its
	// extensions, have a few MiB.
	maxTable = 128 << 20
	// symbolBatch is how many symbols are read at once.
	symbolBatch = 4096
)

// section is a part of an ELF file.
type section struct {
	name               string
	kind, link         uint32
	addr, offset, size uint64
}

// fileSymbols returns the addresses, in an ELF file, of the named symbols that it defines and of its section
// .PyRuntime. It is for programs whose symbols are not in memory: statically linked ones.
func fileSymbols(f io.ReaderAt, names ...string) (map[string]uint64, error) {
	sections, err := readSections(f)
	if err != nil {
		return nil, err
	}
	const symtab, dynsym = 2, 11 // SHT_SYMTAB, SHT_DYNSYM
	found := map[string]uint64{}
	for _, s := range sections {
		if s.name == runtimeSection {
			found[runtimeSection] = s.addr
		}
		if (s.kind != symtab && s.kind != dynsym) || int(s.link) >= len(sections) {
			continue
		}
		if err := scanSymbols(f, s, sections[s.link], names, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readSections reads the table of sections.
func readSections(f io.ReaderAt) ([]section, error) {
	head := make([]byte, elfHeadSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	h, err := parseELFHead(head)
	if err != nil {
		return nil, err
	}
	if h.sectionCount == 0 || h.sectionCount > maxSections || h.sectionNames >= h.sectionCount {
		return nil, errNoELF
	}
	table := make([]byte, h.sectionCount*elfSectionSize)
	if err := readFileAt(f, table, h.sections); err != nil {
		return nil, err
	}
	sections := make([]section, h.sectionCount)
	for i := range sections {
		b := table[i*elfSectionSize:]
		sections[i] = section{kind: half(b, 4), addr: word(b, 16), offset: word(b, 24), size: word(b, 32), link: half(b, 40)}
	}
	names, err := readTable(f, sections[h.sectionNames])
	if err != nil {
		return nil, err
	}
	for i := range sections {
		sections[i].name = nameAt(names, half(table[i*elfSectionSize:], 0))
	}
	return sections, nil
}

// scanSymbols adds the named symbols of one table to found.
func scanSymbols(f io.ReaderAt, table, strings section, names []string, found map[string]uint64) error {
	text, err := readTable(f, strings)
	if err != nil {
		return err
	}
	wanted := map[uint32]string{} // offsets of the names in text
	for _, name := range names {
		// A linker may store a name only as the end of a longer one, so every occurrence counts.
		for at := 0; ; {
			i := bytes.Index(text[at:], []byte(name+"\x00"))
			if i < 0 {
				break
			}
			wanted[uint32(at+i)] = name //nolint:gosec // maxTable bounds it
			at += i + 1
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	batch := make([]byte, symbolBatch*elfSymbolSize)
	for at := uint64(0); at < min(table.size, maxTable); at += uint64(len(batch)) {
		part := batch[:min(uint64(len(batch)), table.size-at)]
		if err := readFileAt(f, part, table.offset+at); err != nil {
			return err
		}
		for ; len(part) >= elfSymbolSize; part = part[elfSymbolSize:] {
			if name, ok := wanted[half(part, 0)]; ok {
				if value, defined := parseSymbol(part); defined {
					found[name] = value
				}
			}
		}
	}
	return nil
}

// readTable reads the content of a section.
func readTable(f io.ReaderAt, s section) ([]byte, error) {
	if s.size > maxTable {
		return nil, errNoELF
	}
	// The size may be wrong. ReadAll allocates no more than the file has.
	b, err := io.ReadAll(io.NewSectionReader(f, int64(s.offset), int64(s.size)))
	if err == nil && uint64(len(b)) != s.size {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// readFileAt fills p from an offset of a file.
func readFileAt(f io.ReaderAt, p []byte, offset uint64) error {
	n, err := f.ReadAt(p, int64(offset))
	if n == len(p) || err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// nameAt returns the text from an offset to the next zero.
func nameAt(text []byte, offset uint32) string {
	if uint64(offset) >= uint64(len(text)) {
		return ""
	}
	text = text[offset:]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return string(text)
}
