package pystack

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var record = flag.String("record", "", "with -run TestRecord: the path of an interpreter of which testdata gets a recording")

// recorder is memory that keeps the pages that were read.
type recorder struct {
	mem   memory
	pages map[uint64]*[pageSize]byte
}

func (r *recorder) readAt(p []byte, addr uint64) error {
	for at := addr &^ (pageSize - 1); at < addr+uint64(len(p)); at += pageSize {
		page := new([pageSize]byte)
		if err := r.mem.readAt(page[:], at); err != nil {
			return err
		}
		r.pages[at] = page
	}
	return r.mem.readAt(p, addr)
}

// recorded is the program of the recordings.
const recorded = `
import sys, threading
lock, blocked = threading.Lock(), threading.Event()
class Trainer:
    def step(self, n):
        if n:
            (lambda: self.step(n - 1))()
        else:
            list(self.größe())
    def größe(self):
        with lock:
            yield lock.acquire(True, blocked.set() or -1)
threading.Thread(target=Trainer().step, args=(2,), daemon=True).start()
blocked.wait()
print("ready", flush=True), sys.stdin.read()
`

// TestRecord makes a recording. The recording contains all memory that a dump needs, so run the interpreter without
// personal paths and environment variables.
func TestRecord(t *testing.T) {
	if *record == "" {
		return
	}
	run := start(t, nil, *record, "-c", recorded)
	run.line()
	p := mustOpen(t, run.pid)
	reader := &recorder{mem: p.reader.mem, pages: map[uint64]*[pageSize]byte{}}
	r := &recording{version: p.version, runtime: p.reader.runtime}
	python, err := r.open(reader)
	if err != nil {
		t.Fatal(err)
	}
	if r.want, err = dump(python); err != nil {
		t.Fatal(err)
	}
	r.pages = reader.pages
	r.minimize(t)
	name := fmt.Sprintf("testdata/python-%d.%d.txt", p.version.Major, p.version.Minor)
	if err := os.WriteFile(name, []byte(r.text(t)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// recordedBlock is how many bytes are in a line of a recording.
const recordedBlock = 16

// minimize sets to 0 all bytes that do not change the dump.
func (r *recording) minimize(t *testing.T) {
	t.Helper()
	if got, err := r.dump(); err != nil || !reflect.DeepEqual(got, r.want) {
		t.Fatalf("the recording gives %+v, %v", got, err)
	}
	for _, page := range r.pages {
		for block := range slices.Chunk(page[:], recordedBlock) {
			before := slices.Clone(block)
			clear(block)
			if got, err := r.dump(); err != nil || !reflect.DeepEqual(got, r.want) {
				copy(block, before)
			}
		}
	}
}

// text returns the recording in the form that load reads.
func (r *recording) text(t *testing.T) string {
	t.Helper()
	want, err := json.Marshal(r.want)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "python %d.%d.%d\nruntime %x\nwant %s\n", r.version.Major, r.version.Minor, r.version.Micro, r.runtime, want)
	for _, addr := range slices.Sorted(maps.Keys(r.pages)) {
		fmt.Fprintf(&b, "page %x\n", addr)
		offset := 0
		for block := range slices.Chunk(r.pages[addr][:], recordedBlock) {
			if slices.ContainsFunc(block, func(c byte) bool { return c != 0 }) {
				fmt.Fprintf(&b, "%03x %x\n", offset, block)
			}
			offset += recordedBlock
		}
	}
	return b.String()
}
