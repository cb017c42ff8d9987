package pystack

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recording is the memory that a dump of a process read. All bytes that do not matter for the result are 0.
type recording struct {
	version Version
	runtime uint64
	want    []Thread // with what Python has as their ids, and no names
	pages   map[uint64]*[pageSize]byte
	reads   int
}

var errNotRecorded = errors.New("not recorded")

func (r *recording) readAt(p []byte, addr uint64) error {
	r.reads++
	for len(p) > 0 {
		page, ok := r.pages[addr&^(pageSize-1)]
		if !ok {
			return errNotRecorded
		}
		n := copy(p, page[addr%pageSize:])
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

// open returns a reader of mem, which is r or a memory in front of it.
func (r *recording) open(mem memory) (*reader, error) {
	l, err := layoutFor(mem, &found{runtime: r.runtime, version: r.version})
	return newReader(mem, r.runtime, l), err
}

// mustOpen is open for a reader that must work. It also returns the states of the threads.
func (r *recording) mustOpen(t *testing.T, mem memory) (*reader, []threadState) {
	t.Helper()
	reader, err := r.open(mem)
	if err != nil {
		t.Fatal(err)
	}
	states, err := reader.threadStates()
	if err != nil {
		t.Fatal(err)
	}
	return reader, states
}

// dump reads all threads of a recorded process.
func (r *recording) dump() ([]Thread, error) {
	reader, err := r.open(r)
	if err != nil {
		return nil, err
	}
	return dump(reader)
}

// dump reads all threads, like Process.Threads without the kernel's part.
func dump(reader *reader) ([]Thread, error) {
	states, err := reader.threadStates()
	if err != nil {
		return nil, err
	}
	var threads []Thread
	for _, s := range states {
		got, err := reader.readStack(s)
		if err != nil {
			return nil, err
		}
		threads = append(threads, Thread{
			ID: int(s.id), Interpreter: s.interpreterID, Frames: got.frames, Changed: got.changed, Truncated: got.truncated,
		})
	}
	return threads, nil
}

// load reads a recording. A line of a page has an offset, and 16 bytes.
func load(t testing.TB, file string) *recording {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{pages: map[uint64]*[pageSize]byte{}}
	var page *[pageSize]byte
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		var addr, offset uint64
		var err error
		switch key {
		case "python":
			_, err = fmt.Sscanf(value, "%d.%d.%d", &r.version.Major, &r.version.Minor, &r.version.Micro)
		case "runtime":
			_, err = fmt.Sscanf(value, "%x", &r.runtime)
		case "want":
			err = json.Unmarshal([]byte(value), &r.want)
		case "page":
			_, err = fmt.Sscanf(value, "%x", &addr)
			page = new([pageSize]byte)
			r.pages[addr] = page
		default:
			if _, err = fmt.Sscanf(key, "%x", &offset); err == nil {
				_, err = hex.Decode(page[offset:], []byte(value))
			}
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", file, lines.Text(), err)
		}
	}
	return r
}

// recordings returns the paths of all recordings.
func recordings(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/python-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	slices.Sort(files)
	return files
}

// TestRecorded reads recordings of versions that the machine may not have.
func TestRecorded(t *testing.T) {
	for _, file := range recordings(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			r := load(t, file)
			got, err := r.dump()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r.want, got); diff != "" {
				t.Errorf("threads (-want +got):\n%s", diff)
			}
			if r.reads > 300 {
				t.Errorf("it took %d reads", r.reads)
			}
		})
	}
}

// FuzzThreads changes recorded memory: two bytes say where, and one what. Whatever is there, a dump ends soon with an
// error or threads within the bounds.
func FuzzThreads(f *testing.F) {
	files := recordings(f)
	var all []*recording
	for i, file := range files {
		all = append(all, load(f, file))
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{0, 1, 2, 1, 0, 0xff, 2, 3, 1})
	}
	f.Fuzz(func(t *testing.T, which uint8, changes []byte) {
		r := all[int(which)%len(all)].clone()
		r.change(changes)
		threads, err := r.dump()
		if r.reads > 100_000 {
			t.Errorf("it took %d reads", r.reads)
		}
		if err != nil {
			return
		}
		for _, th := range threads {
			if len(th.Frames) > maxFrames {
				t.Errorf("%d frames", len(th.Frames))
			}
			for _, f := range th.Frames {
				if len(f.File) > 4*maxText || len(f.Function) > 4*maxText {
					t.Errorf("long names %q, %q", f.File, f.Function)
				}
			}
		}
	})
}

// clone returns a recording that can be changed.
func (r *recording) clone() *recording {
	c := *r
	c.pages = map[uint64]*[pageSize]byte{}
	for addr, page := range r.pages {
		copied := *page
		c.pages[addr] = &copied
	}
	return &c
}

// words are the words that are not 0: those hold all that matters.
func (r *recording) words() [][]byte {
	var words [][]byte
	for _, addr := range slices.Sorted(maps.Keys(r.pages)) {
		for page := r.pages[addr][:]; len(page) > 0; page = page[8:] {
			if word(page, 0) != 0 {
				words = append(words, page[:8])
			}
		}
	}
	return words
}

// change applies changes of three bytes each to the words. The highest bit says whether a byte is set, or a word
// becomes another one, such as a pointer that leads elsewhere.
func (r *recording) change(changes []byte) {
	words := r.words()
	for ; len(changes) >= 3; changes = changes[3:] {
		at := int(changes[0]&0x7f)<<8 | int(changes[1])
		to := words[at%len(words)]
		if changes[0]&0x80 == 0 {
			to[at/len(words)%8] = changes[2]
		} else {
			copy(to, words[(at+int(changes[2]))%len(words)])
		}
	}
}
