package pystack

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// threadIDs translates Python's id of a thread into the id that the thread has in this process's /proc.
type threadIDs struct {
	// byPthread says that Python knows only the result of pthread_self.
	byPthread bool
	// namespaced says that the process is in a pid namespace below that of /proc, so each of its threads has several ids.
	namespaced bool
	// tasks maps the ids in the process's own namespace to those in /proc. It is filled only if one of the above is true.
	tasks map[uint64]int
}

// newThreadIDs finds out how to translate the ids of a process.
func newThreadIDs(pid int, l *layout) (threadIDs, error) {
	own, err := namespaceIDs(fmt.Sprintf("/proc/%d/status", pid))
	return threadIDs{byPthread: l.nativeID == 0, namespaced: len(own) > 1}, err
}

// refresh reads which threads the process has now.
func (t *threadIDs) refresh(pid int) error {
	if !t.byPthread && !t.namespaced {
		return nil
	}
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return procError(err)
	}
	t.tasks = make(map[uint64]int, len(entries))
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		inner := uint64(id) //nolint:gosec // an id is positive
		if t.namespaced {
			ids, err := namespaceIDs(dir + "/" + e.Name() + "/status")
			if err != nil || len(ids) == 0 {
				continue // it has ended
			}
			inner = ids[len(ids)-1]
		}
		t.tasks[inner] = id
	}
	return nil
}

// kernelID returns the id in /proc of the thread with Python's id; ok is false if there is no such thread.
func (t *threadIDs) kernelID(r *reader, id uint64) (_ int, ok bool) {
	if !t.byPthread && !t.namespaced {
		return int(id), id <= 1<<31-1 //nolint:gosec // the bound is checked
	}
	if !t.byPthread {
		found, ok := t.tasks[id]
		return found, ok
	}
	for _, offset := range tidOffsets[runtime.GOARCH] {
		var b [4]byte
		if r.mem.readAt(b[:], id+offset) != nil {
			continue
		}
		if found, ok := t.tasks[uint64(binary.LittleEndian.Uint32(b[:]))]; ok {
			return found, true
		}
	}
	return 0, false
}

// tidOffsets has the offsets of the thread's id in struct pthread, to which pthread_self points: in glibc
// (nptl/descr.h: after the TCB on amd64, after 24 words on arm64, and two pointers) and in musl
// (src/internal/pthread_impl.h: after 6 words on amd64, 4 on arm64).
var tidOffsets = map[string][]uint64{
	"amd64": {720, 48},
	"arm64": {208, 32},
}

// namespaceIDs returns the ids of a thread or process, from the namespace of /proc to its own. Kernels without pid
// namespaces report none.
func namespaceIDs(path string) ([]uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, procError(err)
	}
	_, line, _ := strings.Cut(string(data), "\nNSpid:")
	line, _, _ = strings.Cut(line, "\n")
	var ids []uint64
	for field := range strings.FieldsSeq(line) {
		id, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// threadName returns the kernel's name of a thread.
func threadName(pid, id int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, id))
	return strings.TrimSuffix(string(b), "\n"), err
}
