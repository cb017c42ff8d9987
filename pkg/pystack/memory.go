package pystack

import (
	"encoding/binary"
	"sync"
)

// memory is the memory of a process, or a recording of one.
type memory interface {
	// readAt fills p with the bytes at an address. An error means that p may have changed in part.
	readAt(p []byte, addr uint64) error
}

// batch is memory that reads many pages at once, which costs less than one read for each.
type batch interface {
	// readPages fills each page with the bytes at its address. An error means that some pages may have changed.
	readPages(pages []*[pageSize]byte, addrs []uint64) error
}

// maxBatch bounds the pages that are read at once: IOV_MAX of Linux.
const maxBatch = 1024

// pageSize is the unit in which snapshot reads. Pages of the kernel are as large or larger, so a page is readable
// completely or not at all.
const pageSize = 4096

// maxPages bounds a snapshot to 16 MiB. The longest stack that is read needs fewer.
const maxPages = 4096

// freePages are pages that no snapshot uses. All Process values share them. A read takes a millisecond, and a caller
// that watches many processes would otherwise keep 100 KiB or more for each.
var freePages = sync.Pool{New: func() any { return new([pageSize]byte) }}

// snapshot is memory that reads whole pages and keeps them. Objects that are used together, such as the frames of a
// thread, are often neighbors. So one system call reads many of them, all at one moment.
type snapshot struct {
	mem   memory
	pages map[uint64]*[pageSize]byte
	// across holds the bytes of the last view that crossed the end of a page.
	across []byte
}

func newSnapshot(mem memory) *snapshot {
	return &snapshot{mem: mem, pages: map[uint64]*[pageSize]byte{}}
}

// reset forgets all pages, so that the next reads are fresh.
func (s *snapshot) reset() {
	for _, page := range s.pages {
		freePages.Put(page)
	}
	clear(s.pages)
}

// refresh reads all pages again, because the next reads will mostly need the same ones.
func (s *snapshot) refresh() {
	mem, ok := s.mem.(batch)
	if !ok || len(s.pages) > maxBatch {
		s.reset()
		return
	}
	pages, addrs := make([]*[pageSize]byte, 0, len(s.pages)), make([]uint64, 0, len(s.pages))
	for addr, page := range s.pages {
		pages, addrs = append(pages, page), append(addrs, addr)
	}
	if mem.readPages(pages, addrs) != nil { // one of them is no longer mapped
		s.reset()
	}
}

// view returns size bytes at an address. They stay valid until the next call.
func (s *snapshot) view(addr, size uint64) ([]byte, error) {
	if at := addr % pageSize; at+size <= pageSize {
		page, err := s.page(addr - at)
		if err != nil {
			return nil, err
		}
		return page[at : at+size], nil
	}
	if uint64(cap(s.across)) < size {
		s.across = make([]byte, size)
	}
	s.across = s.across[:size]
	return s.across, s.readAt(s.across, addr)
}

// readAt fills p from the pages around addr.
func (s *snapshot) readAt(p []byte, addr uint64) error {
	if addr+uint64(len(p)) < addr {
		return errTorn
	}
	for len(p) > 0 {
		page, err := s.page(addr &^ (pageSize - 1))
		if err != nil {
			return err
		}
		n := copy(p, page[addr%pageSize:])
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

// page returns the page at an aligned address.
func (s *snapshot) page(addr uint64) (*[pageSize]byte, error) {
	if page, ok := s.pages[addr]; ok {
		return page, nil
	}
	if len(s.pages) >= maxPages {
		return nil, errTorn
	}
	page := freePages.Get().(*[pageSize]byte) // as New makes them
	if err := s.mem.readAt(page[:], addr); err != nil {
		freePages.Put(page)
		return nil, err
	}
	s.pages[addr] = page
	return page, nil
}

// readWord reads 64 bits.
func readWord(mem memory, addr uint64) (uint64, error) {
	var b [8]byte
	if err := mem.readAt(b[:], addr); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// word returns the 64 bits at an offset of a struct, 0 beyond its end.
func word(b []byte, offset uint64) uint64 {
	if offset > uint64(len(b)) || uint64(len(b))-offset < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b[offset:])
}

// half returns the 32 bits at an offset of a struct, 0 beyond its end.
func half(b []byte, offset uint64) uint32 {
	if offset > uint64(len(b)) || uint64(len(b))-offset < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(b[offset:])
}
