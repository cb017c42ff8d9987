package evidence

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

// Machine reads evidence from the machine that this process runs on. Its methods may be called concurrently.
type Machine struct {
	mu  sync.Mutex
	log *kernelTail
}

// NewMachine opens the machine's kernel log if this user may read it. Call Close when done.
func NewMachine() *Machine { return &Machine{log: openKernelTail("/dev/kmsg", os.DirFS("/"))} }

// Close closes the kernel log.
func (m *Machine) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log.close()
}

// Memory calls [ReadMemory] for the machine.
func (*Machine) Memory() Memory { return ReadMemory(os.DirFS("/")) }

// Mark makes Log skip what the kernel has logged so far.
func (m *Machine) Mark() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log.mark()
}

// Log returns what the kernel has logged since the last Mark or Log.
func (m *Machine) Log() KernelLog {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.read(os.DirFS("/"), time.Now())
}

// Core calls findCore for a process that ran in this process's working directory.
func (*Machine) Core(pid int, sig syscall.Signal, since time.Time) string {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	return findCore(os.DirFS("/"), pid, sig, dir, since)
}

// State returns the state of a process, as in proc(5): T if a signal has stopped it. It is 0 if unknown.
func (*Machine) State(pid int) byte {
	// /proc belongs to another pid namespace
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return 0
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	if _, after, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")); found && len(after) > 0 {
		return after[0]
	}
	return 0
}

// Switches returns how often the first thread of a process has left a CPU, voluntarily or not. It is 0 if unknown.
func (*Machine) Switches(pid int) (n uint64) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
			continue
		}
		count, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64) // 0 if it is no number
		n += count
	}
	return n
}

const (
	// fileEnd is how much of the end of a file is read, in bytes.
	fileEnd = 1 << 20
	// fileLast is how much of its end counts as written by the last write. The time of the rest is unknown.
	fileLast = 16 << 10
)

// ScanFile returns the evidence at the end of a file to which a worker wrote its stderr itself. It returns nothing if
// the file cannot be read.
func ScanFile(name string) []failure.Finding {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	skip := max(0, info.Size()-fileEnd)
	data, err := io.ReadAll(io.NewSectionReader(f, skip, fileEnd))
	if err != nil {
		return nil
	}
	if skip > 0 { // the data begins within a line
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	last := max(0, len(data)-fileLast)
	last = bytes.LastIndexByte(data[:last], '\n') + 1
	var s Scanner
	s.Scan(data[:last], time.Time{})
	s.Scan(data[last:], info.ModTime())
	return s.Findings()
}
