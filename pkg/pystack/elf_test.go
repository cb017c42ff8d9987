package pystack

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"testing"
)

// loaded is memory with an ELF file as the loader maps it, at a bias, without relocations.
type loaded struct {
	bias     uint64
	segments []*elf.Prog
}

var errUnmapped = errors.New("not mapped")

func (l *loaded) readAt(p []byte, addr uint64) error {
	for _, s := range l.segments {
		if at := addr - l.bias - s.Vaddr; s.Type == elf.PT_LOAD && at < s.Filesz && s.Filesz-at >= uint64(len(p)) {
			_, err := s.ReadAt(p, int64(at))
			return err
		}
	}
	return errUnmapped
}

// TestSymbols compares with what debug/elf finds in the programs and libraries of this machine.
func TestSymbols(t *testing.T) {
	tested := 0
	for _, path := range []string{
		"/usr/bin/python3", "/bin/sh", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6",
	} {
		f, err := elf.Open(path)
		if err != nil {
			continue // no such file, or no Linux
		}
		t.Cleanup(func() { f.Close() })
		want, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		tested++
		mem := &loaded{segments: f.Progs}
		if f.Type == elf.ET_DYN {
			mem.bias = 0x7f0000000000
		}
		base := mem.bias
		for _, s := range f.Progs {
			if s.Type == elf.PT_LOAD && s.Off == 0 {
				base += s.Vaddr
			}
		}
		img, err := readImage(mem, base)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		symbols, ok := img.readSymbols()
		if !ok {
			t.Fatalf("%s has no symbols", path)
		}
		found := 0
		for _, s := range want {
			defined := s.Section != elf.SHN_UNDEF
			at, ok := img.lookup(symbols, s.Name)
			if ok != defined && elf.ST_BIND(s.Info) == elf.STB_GLOBAL && s.Version == "" {
				t.Errorf("%s: found %s: %v, want %v", path, s.Name, ok, defined)
			}
			if ok && at-mem.bias == s.Value {
				found++
			}
		}
		if _, ok := img.lookup(symbols, "no_such_symbol"); ok {
			t.Errorf("%s: found a symbol that it does not have", path)
		}
		t.Logf("%s: found %d of %d symbols", path, found, len(want))
		if found == 0 {
			t.Errorf("%s: found none of %d symbols", path, len(want))
		}
		names := []string{want[len(want)/2].Name, want[len(want)-1].Name}
		fromFile, err := fileSymbols(openFile(t, path), names...)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, name := range names {
			if at, ok := img.lookup(symbols, name); ok && fromFile[name] != at-mem.bias {
				t.Errorf("%s: %s is at %#x in the file, %#x in memory", path, name, fromFile[name], at)
			}
		}
	}
	if tested == 0 {
		t.Skip("this machine has no known ELF file")
	}
}

// openFile opens a file until the test ends.
func openFile(t *testing.T, path string) io.ReaderAt {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// at0x10000 is memory that begins there.
type at0x10000 []byte

func (m at0x10000) readAt(p []byte, addr uint64) error {
	addr -= 0x10000
	if addr > uint64(len(m)) || uint64(len(m))-addr < uint64(len(p)) {
		return errUnmapped
	}
	copy(p, m[addr:])
	return nil
}

// FuzzELF gives bytes as an image in memory, and as a file.
func FuzzELF(f *testing.F) {
	// A head with one segment, and one with two sections.
	head := make([]byte, 512)
	copy(head, "\x7fELF\x02\x01\x01")
	head[32], head[54], head[56] = 64, elfSegmentSize, 2
	head[64], head[64+40] = segmentLoad, 0xff
	head[64+56], head[64+56+17] = segmentDynamic, 1
	f.Add(bytes.Clone(head))
	head[41], head[58], head[60] = 1, elfSectionSize, 2
	head[256+4], head[256+32], head[256+40] = 2, 24, 1
	f.Add(head)
	f.Fuzz(func(_ *testing.T, data []byte) {
		if img, err := readImage(at0x10000(data), 0x10000); err == nil {
			if symbols, ok := img.readSymbols(); ok {
				img.lookup(symbols, runtimeSymbol)
			}
		}
		_, _ = fileSymbols(bytes.NewReader(data), runtimeSymbol) // most are no ELF files
	})
}
