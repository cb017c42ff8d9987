package pystack

import (
	"encoding/binary"
	"errors"
)

// The standard library's debug/elf is not used: it makes the binary larger, reads whole symbol tables, and is not
// hardened against damaged files. Structures and numbers are those of elf(5), for 64 bits and little-endian.

const (
	elfHeadSize    = 64
	elfSegmentSize = 56
	elfSectionSize = 64
	elfSymbolSize  = 24
	elfDynamicSize = 16

	segmentLoad    = 1
	segmentDynamic = 2

	// maxSegments and maxDynamic bound tables that have about 10 and 40 entries.
	maxSegments = 256
	maxDynamic  = 1024
	// maxChain bounds the symbols with one hash.
	maxChain = 1 << 16
)

var errNoELF = errors.New("no 64-bit little-endian ELF image")

// elfHead says where the other tables of an ELF file are.
type elfHead struct {
	segments, sections         uint64 // offsets in the file
	segmentCount, sectionCount int
	sectionNames               int // index of the section with the names of sections
}

// parseELFHead decodes the first bytes of an ELF file.
func parseELFHead(b []byte) (elfHead, error) {
	const wide, little = 2, 1 // ELFCLASS64, ELFDATA2LSB
	if len(b) < elfHeadSize || string(b[:4]) != "\x7fELF" || b[4] != wide || b[5] != little {
		return elfHead{}, errNoELF
	}
	short := func(at int) int { return int(binary.LittleEndian.Uint16(b[at:])) }
	h := elfHead{
		segments: word(b, 32), sections: word(b, 40),
		segmentCount: short(56), sectionCount: short(60), sectionNames: short(62),
	}
	if short(54) != elfSegmentSize && h.segmentCount > 0 || h.segmentCount > maxSegments {
		return elfHead{}, errNoELF
	}
	return h, nil
}

// image is an ELF file that the loader has mapped.
type image struct {
	mem memory
	// bias is what the loader added to the addresses in the file: 0 for a program at a fixed address.
	bias uint64
	// low and high bound the segments, in addresses of the file.
	low, high uint64
	dynamic   uint64 // address of the dynamic section in memory, 0 if it has none
}

// readImage reads the program headers of the image at base.
func readImage(mem memory, base uint64) (*image, error) {
	head := make([]byte, elfHeadSize)
	if err := mem.readAt(head, base); err != nil {
		return nil, err
	}
	h, err := parseELFHead(head)
	if err != nil {
		return nil, err
	}
	table := make([]byte, h.segmentCount*elfSegmentSize)
	if err := mem.readAt(table, base+h.segments); err != nil {
		return nil, err
	}
	img := &image{mem: mem, low: ^uint64(0)}
	first, dynamic := false, uint64(0)
	for ; len(table) > 0; table = table[elfSegmentSize:] {
		offset, addr, size := word(table, 8), word(table, 16), word(table, 40)
		switch half(table, 0) {
		case segmentLoad:
			img.low, img.high = min(img.low, addr), max(img.high, addr+size)
			if offset == 0 {
				img.bias, first = base-addr, true
			}
		case segmentDynamic:
			dynamic = addr
		}
	}
	if !first {
		return nil, errNoELF
	}
	if dynamic != 0 {
		img.dynamic = img.bias + dynamic
	}
	return img, nil
}

// symbols has the addresses of an image's tables of dynamic symbols.
type symbols struct {
	hash, entries, names uint64
}

// readSymbols finds the tables. It returns false if the image has no dynamic symbols, or no GNU hash table of them.
func (img *image) readSymbols() (symbols, bool) {
	const end, strtab, symtab, gnuHash = 0, 5, 6, 0x6ffffef5 // DT_NULL, DT_STRTAB, DT_SYMTAB, DT_GNU_HASH
	var t symbols
	if img.dynamic == 0 {
		return t, false
	}
	entry := make([]byte, elfDynamicSize)
	for i := range uint64(maxDynamic) {
		if img.mem.readAt(entry, img.dynamic+i*elfDynamicSize) != nil {
			return t, false
		}
		value := word(entry, 8)
		switch word(entry, 0) {
		case end:
			return t, t.hash != 0 && t.entries != 0 && t.names != 0
		case strtab:
			t.names = img.loaded(value)
		case symtab:
			t.entries = img.loaded(value)
		case gnuHash:
			t.hash = img.loaded(value)
		}
	}
	return t, false
}

// loaded returns the address in memory of a pointer of the dynamic section. glibc's loader adds the bias to the
// pointers themselves; others leave the section as it is.
func (img *image) loaded(pointer uint64) uint64 {
	if img.low <= pointer && pointer < img.high {
		return img.bias + pointer
	}
	return pointer
}

// lookup returns the address in memory of a symbol that the image defines. It reads the GNU hash table: a head of four
// numbers, a Bloom filter, the first symbol of each bucket, and the hashes of the symbols from the first hashed one on.
// The last hash of a bucket is odd.
func (img *image) lookup(t symbols, name string) (uint64, bool) {
	head := make([]byte, 16)
	if img.mem.readAt(head, t.hash) != nil {
		return 0, false
	}
	buckets, hashed, bloom := half(head, 0), half(head, 4), uint64(half(head, 8))
	if buckets == 0 {
		return 0, false
	}
	hash := gnuHash(name)
	bucketsAt := t.hash + uint64(len(head)) + 8*bloom
	chainAt := bucketsAt + 4*uint64(buckets)
	index, ok := readHalf(img.mem, bucketsAt+4*uint64(hash%buckets))
	for range maxChain {
		if !ok || index < hashed {
			return 0, false
		}
		var h uint32
		if h, ok = readHalf(img.mem, chainAt+4*uint64(index-hashed)); !ok {
			return 0, false
		}
		if h|1 == hash|1 {
			if addr, ok := img.symbol(t, uint64(index), name); ok {
				return addr, true
			}
		}
		if h&1 == 1 {
			return 0, false
		}
		index++
	}
	return 0, false
}

// symbol returns the address in memory of the symbol with that index, if it has that name and the image defines it.
func (img *image) symbol(t symbols, index uint64, name string) (uint64, bool) {
	entry := make([]byte, elfSymbolSize)
	if img.mem.readAt(entry, t.entries+index*elfSymbolSize) != nil {
		return 0, false
	}
	found := make([]byte, len(name)+1)
	if img.mem.readAt(found, t.names+uint64(half(entry, 0))) != nil || string(found) != name+"\x00" {
		return 0, false
	}
	addr, defined := parseSymbol(entry)
	return img.bias + addr, defined
}

// parseSymbol returns the value of an entry of a symbol table, and whether the file defines that symbol.
func parseSymbol(entry []byte) (uint64, bool) {
	return word(entry, 8), binary.LittleEndian.Uint16(entry[6:]) != 0
}

// gnuHash returns the hash of a symbol in a GNU hash table.
func gnuHash(name string) uint32 {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h*33 + uint32(c)
	}
	return h
}

// readHalf reads 32 bits.
func readHalf(mem memory, addr uint64) (uint32, bool) {
	var b [4]byte
	err := mem.readAt(b[:], addr)
	return half(b[:], 0), err == nil
}
