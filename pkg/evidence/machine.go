package evidence

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
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
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return 0 // /proc belongs to another pid namespace
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
