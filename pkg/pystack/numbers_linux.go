package pystack

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// threadNumbers translates what Python knows of a thread into the number that it has in this process's /proc.
type threadNumbers struct {
	// byPthread says that Python knows only pthread_self.
	byPthread bool
	// namespaced says that the process is in a pid namespace below that of /proc, so its threads have two numbers.
	namespaced bool
	// tasks are the numbers of the process's threads here by those in its own namespace. It is filled only where one of
	// the above is true.
	tasks map[uint64]int
}

// newThreadNumbers asks in which namespaces a process has numbers.
func newThreadNumbers(pid int, l *layout) (threadNumbers, error) {
	own, err := namespaceIDs(fmt.Sprintf("/proc/%d/status", pid))
	return threadNumbers{byPthread: l.nativeID == 0, namespaced: len(own) > 1}, err
}

// refresh notes the threads that the process has now.
func (n *threadNumbers) refresh(pid int) error {
	if !n.byPthread && !n.namespaced {
		return nil
	}
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return procError(err)
	}
	n.tasks = make(map[uint64]int, len(entries))
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		inner := uint64(id) //nolint:gosec // a thread's number is positive
		if n.namespaced {
			ids, err := namespaceIDs(dir + "/" + e.Name() + "/status")
			if err != nil || len(ids) == 0 {
				continue // it has ended
			}
			inner = ids[len(ids)-1]
		}
		n.tasks[inner] = id
	}
	return nil
}

// kernelID returns the number of a thread here; ok is false if there is no such thread.
func (n *threadNumbers) kernelID(r *reader, id uint64) (_ int, ok bool) {
	if !n.byPthread && !n.namespaced {
		return int(id), id <= 1<<31-1 //nolint:gosec // the bound is checked
	}
	if !n.byPthread {
		found, ok := n.tasks[id]
		return found, ok
	}
	for _, offset := range pthreadNumber[runtime.GOARCH] {
		var b [4]byte
		if r.mem.readAt(b[:], id+offset) != nil {
			continue
		}
		if found, ok := n.tasks[uint64(binary.LittleEndian.Uint32(b[:]))]; ok {
			return found, true
		}
	}
	return 0, false
}

// pthreadNumber is where struct pthread has the number of the thread, which is at the address that pthread_self
// returns: in glibc (nptl/descr.h: after the TCB on amd64, after 24 words on arm64, and two pointers) and in musl
// (src/internal/pthread_impl.h: after 6 words on amd64, 4 on arm64).
var pthreadNumber = map[string][]uint64{
	"amd64": {720, 48},
	"arm64": {208, 32},
}

// namespaceIDs returns the numbers of a thread or process, from the namespace of /proc to its own. Kernels without pid
// namespaces have none.
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
