package pystack

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// moving is recorded memory of a thread that returns from its innermost function, or calls it again, before each read
// of its innermost frame.
type moving struct {
	*recording

	pointer uint64    // address of the pointer to the innermost frame
	frames  [2]uint64 // the innermost two
	moves   int       // how often it does that
	moved   int
}

func (m *moving) readAt(p []byte, addr uint64) error {
	if addr != m.pointer || len(p) != 8 {
		return m.recording.readAt(p, addr)
	}
	if m.moved < m.moves {
		m.moved++
	}
	binary.LittleEndian.PutUint64(p, m.frames[m.moved%2])
	return nil
}

// TestChanged reads threads whose stack changes between two reads.
func TestChanged(t *testing.T) {
	for _, file := range recordings(t) {
		for _, tc := range []struct {
			name    string
			moves   int
			changed bool
			dropped int // inner frames that are not there at the end
		}{
			{name: "never", moves: 0},
			{name: "once", moves: 1, dropped: 1},
			{name: "twice", moves: 2},
			{name: "always", moves: 1000, changed: true},
		} {
			t.Run(filepath.Base(file)+"/"+tc.name, func(t *testing.T) {
				m, state := newMoving(t, file)
				m.moves = tc.moves
				reader, _ := m.mustOpen(t, m)
				got, err := reader.readStack(state)
				if err != nil {
					t.Fatal(err)
				}
				want := m.want[0].Frames[tc.dropped:]
				if diff := cmp.Diff(want, got.frames); diff != "" || got.changed != tc.changed {
					t.Errorf("changed: %v, frames (-want +got):\n%s", got.changed, diff)
				}
			})
		}
	}
}

// newMoving returns the memory of a recording with its first thread, which has several frames.
func newMoving(t *testing.T, file string) (*moving, threadState) {
	t.Helper()
	r := load(t, file)
	reader, states := r.mustOpen(t, r)
	l := reader.layout
	m := &moving{recording: r, pointer: states[0].addr + l.threadFrame}
	if l.frames == chainedFrames {
		chain, err := readWord(r, m.pointer)
		if err != nil {
			t.Fatal(err)
		}
		m.pointer = chain + l.current
	}
	calls, _, err := reader.walk(nil, states[0])
	if err != nil {
		t.Fatal(err)
	}
	m.frames = [2]uint64{calls[0].frame, calls[1].frame}
	return m, states[0]
}

// TestReused changes each word of recorded memory between two dumps, as if another object had taken that memory. The
// second dump must not keep anything of the first.
func TestReused(t *testing.T) {
	for _, file := range recordings(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			original := load(t, file)
			different := 0
			for i := range len(original.words()) {
				r := original.clone()
				used, _ := r.mustOpen(t, r)
				before, err := dump(used)
				if err != nil {
					t.Fatal(err)
				}
				r.words()[i][i%8]++
				want, err := dump(newReader(r, r.runtime, used.layout))
				if err != nil {
					continue
				}
				got, err := dump(used)
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Errorf("word %d: %v, threads (-fresh +used):\n%s", i, err, diff)
				}
				if !cmp.Equal(before, want) {
					different++
				}
			}
			if different < 10 {
				t.Errorf("only %d changes had another result", different)
			}
		})
	}
}

// TestTorn makes contradictions in recorded memory, as a read finds them that the process changes meanwhile.
func TestTorn(t *testing.T) {
	// Until 3.10 the instructions' size is not read, and a frame does not say what called it.
	onlyLater := []string{"instruction after the code", "the chain ends at a function that Python called"}
	for _, file := range recordings(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			original := load(t, file)
			reader, states := original.mustOpen(t, original)
			l := reader.layout
			calls, _, err := reader.walk(nil, states[0])
			if err != nil {
				t.Fatal(err)
			}
			first, second, outermost := calls[0], calls[1], calls[len(calls)-1]
			thread, last := states[0].addr, states[len(states)-1].addr
			for _, tc := range []struct {
				name      string
				addr, set uint64
			}{
				{name: "frames in a ring", addr: outermost.frame + l.framePrevious, set: first.frame},
				{name: "a frame that is its own caller", addr: second.frame + l.framePrevious, set: second.frame},
				{name: "the chain ends at a function that Python called", addr: second.frame + l.framePrevious, set: 0},
				{name: "code is another object", addr: second.frame + l.frameCode, set: original.word(second.code + l.codeFile)},
				{name: "code of another type", addr: second.code + l.objectType, set: thread},
				{name: "code is nowhere", addr: second.frame + l.frameCode, set: 8},
				{name: "instruction before the code", addr: second.frame + l.frameInstruction, set: second.instruction - 1<<30},
				{name: "instruction after the code", addr: second.frame + l.frameInstruction, set: second.instruction + 1<<20},
				{name: "threads in a ring", addr: last + l.threadNext, set: thread},
				{name: "a thread is followed by itself", addr: thread + l.threadNext, set: thread},
				{name: "a thread that is not in the list", addr: thread + l.threadPrevious, set: last},
				{name: "a thread of no interpreter", addr: last + l.threadInterpreter, set: 8},
			} {
				if l.frames == objectFrames && slices.Contains(onlyLater, tc.name) {
					continue
				}
				r := original.clone()
				r.set(tc.addr, tc.set)
				if threads, err := r.dump(); err == nil {
					t.Errorf("%s: got %+v", tc.name, threads)
				}
				if r.reads > 2000 {
					t.Errorf("%s: it took %d reads", tc.name, r.reads)
				}
			}
		})
	}
}

// set changes a word.
func (r *recording) set(addr, value uint64) {
	binary.LittleEndian.PutUint64(r.pages[addr&^(pageSize-1)][addr%pageSize:], value)
}

// word returns a word.
func (r *recording) word(addr uint64) uint64 {
	return word(r.pages[addr&^(pageSize-1)][:], addr%pageSize)
}

// TestTaggedReference sets a flag of reference counting in the frames' references to code objects.
func TestTaggedReference(t *testing.T) {
	r := load(t, "testdata/python-3.14.txt")
	reader, states := r.mustOpen(t, r)
	for _, s := range states {
		calls, _, err := reader.walk(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calls {
			at := c.frame + reader.layout.frameCode
			r.pages[at&^(pageSize-1)][at%pageSize] |= 1
		}
	}
	got, err := r.dump()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.want, got); diff != "" {
		t.Errorf("threads (-want +got):\n%s", diff)
	}
}
