package liveness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/stacks"
)

// procReader reads the counters of one process. It keeps no files open: that would take many files for many workers,
// and save only half of the short time of a read. Only one goroutine at a time may use it.
type procReader struct {
	last threadTime // of the main thread, as of the last read
}

// buffers hold what is read from /proc, for all workers. The longest file is status, because of its CPU masks.
var buffers = sync.Pool{New: func() any { return new([8192]byte) }}

// read takes a sample of a process. ok is false if the process does not exist. The observation is not known if the
// process cannot be read for another reason.
func (r *procReader) read(pid int) (o observation, ok bool) {
	buf := buffers.Get().(*[8192]byte)
	defer buffers.Put(buf)
	data, err := readProc(buf, pid, "stat")
	if err != nil {
		return o, !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH)
	}
	all, ok := parseStat(data)
	if !ok {
		return o, false
	}
	survivor := byte(0) // state of another thread, if the main thread has exited
	if hasEnded(all.state) {
		if _, survivor = otherThread(pid); survivor == 0 {
			return o, false
		}
	}
	o = observation{known: true, pid: pid, state: all.state, cpu: all.cpu, faults: all.faults}
	task := "task/" + strconv.Itoa(pid)
	data, _ = readProc(buf, pid, task+"/stat")
	if main, ok := parseStat(data); ok {
		o.state, o.main.cpu = main.state, main.cpu
	}
	if survivor != 0 {
		o.state = survivor
	}
	data, _ = readProc(buf, pid, "io")
	o.bytes = parseIO(data)
	data, _ = readProc(buf, pid, task+"/status")
	o.main.switches, o.tracer = parseStatus(data)
	if o.state == 'S' && o.main == r.last {
		o.atTerminal, o.unread = waitsForPeople(pid)
	}
	r.last = o.main
	return o, true
}

// hasEnded reports whether a thread in that state has exited.
func hasEnded(state byte) bool { return state == 'Z' || state == 'X' }

// otherThread returns a thread other than the main one, and its state; 0 if none runs. A process whose main thread has
// exited lives until its last thread exits.
func otherThread(pid int) (tid int, state byte) {
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	tasks, _ := os.ReadDir(dir)
	for _, task := range tasks {
		data, _ := os.ReadFile(dir + task.Name() + "/stat")
		s, ok := parseStat(data)
		if tid := int(number([]byte(task.Name()))); ok && tid != pid && !hasEnded(s.state) {
			return tid, s.state
		}
	}
	return 0, 0
}

// mainEnded reports whether the main thread of a process has exited while others run.
func mainEnded(pid int) bool {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	s, ok := parseStat(data)
	if !ok || !hasEnded(s.state) {
		return false
	}
	tid, _ := otherThread(pid)
	return tid != 0
}

// readProc reads a file of a process.
func readProc(buf *[8192]byte, pid int, name string) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd)
	return buf[:max(n, 0)], err
}

// stat is the content of /proc/PID/stat.
type stat struct {
	state              byte
	parent             int
	faults, cpu, start uint64
}

// parseStat reads the fields of proc_pid_stat(5).
func parseStat(data []byte) (s stat, ok bool) {
	at := bytes.LastIndexByte(data, ')') // of the name, which may have any bytes
	if at < 0 || at+2 >= len(data) {
		return s, false
	}
	rest := data[at+2:]
	s.state = rest[0]
	for field := 3; len(rest) > 0; field++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{' '})
		switch field {
		case 4:
			s.parent = int(number(text))
		case 10, 12: // minflt, majflt
			s.faults += number(text)
		case 14, 15: // utime, stime
			s.cpu += number(text)
		case 22:
			s.start = number(text)
			return s, true
		}
	}
	return s, false
}

// parseIO returns the sum of rchar and wchar of proc_pid_io(5).
func parseIO(data []byte) uint64 { return field(data, "rchar:") + field(data, "wchar:") }

// parseStatus reads lines of proc_pid_status(5).
func parseStatus(data []byte) (switches uint64, tracer int) {
	switches = field(data, "\nvoluntary_ctxt_switches:") + field(data, "\nnonvoluntary_ctxt_switches:")
	return switches, int(field(data, "\nTracerPid:"))
}

// field returns the number that follows a name; 0 if there is none.
func field(data []byte, name string) uint64 {
	at := bytes.Index(data, []byte(name))
	if at < 0 {
		return 0
	}
	line, _, _ := bytes.Cut(data[at+len(name):], []byte{'\n'})
	return number(bytes.TrimSpace(line))
}

// number reads decimal digits without allocating.
func number(text []byte) (n uint64) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// waitsForPeople reports whether a sleeping main thread reads from a terminal, or writes to a full pipe at stdout or
// stderr.
func waitsForPeople(pid int) (atTerminal, unread bool) {
	switch wait := stacks.KernelWait(pid); {
	case strings.HasSuffix(wait, "pipe_write"):
		call, fd, known := systemCall(pid)
		return false, known && (call == unix.SYS_WRITE || call == unix.SYS_WRITEV) && (fd == 1 || fd == 2)
	case wait == "n_tty_read" || wait == "wait_woken":
		// Where the kernel names only its general wait function, which sockets use too, the system call decides.
		call, fd, known := systemCall(pid)
		if known && call != unix.SYS_READ || !known && wait == "wait_woken" {
			return false, false
		}
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		return err == nil && (strings.HasPrefix(target, "/dev/pts/") || strings.HasPrefix(target, "/dev/tty") ||
			target == "/dev/console"), false
	}
	return false, false
}

// systemCall returns the number and the first argument of the main thread's current system call (proc_pid_syscall(5)).
// known is false if the kernel does not report it.
func systemCall(pid int) (number int, first uint64, known bool) {
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	fields := strings.Fields(string(call))
	if err != nil || len(fields) < 2 {
		return 0, 0, false
	}
	if number, err = strconv.Atoi(fields[0]); err != nil {
		return 0, 0, false
	}
	first, err = strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 64)
	return number, first, err == nil
}

// maxArgs bounds how much of a process's command line is kept, in bytes.
const maxArgs = 1 << 10

// maxProcesses bounds how many processes of one worker are listed.
const maxProcesses = 512

// listProcesses returns a process and its descendants, nearest first. Processes that exit meanwhile may be missing.
func listProcesses(root int) []process {
	found := make([]process, 0, 8)
	seen := []int{root}
	for i := 0; i < len(seen); i++ {
		p, ok := readProcess(seen[i])
		if !ok {
			continue
		}
		found = append(found, p)
		for _, child := range stacks.Children(seen[i]) {
			if len(seen) < maxProcesses && !slices.Contains(seen, child) {
				seen = append(seen, child)
			}
		}
	}
	return found
}

func readProcess(pid int) (p process, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	s, ok := parseStat(data)
	if !ok {
		return p, false
	}
	p = process{id: processID{pid, s.start}, parent: s.parent, state: s.state, cpu: s.cpu, faults: s.faults}
	if from, to := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')'); from >= 0 && from < to {
		p.name = string(data[from+1 : to])
	}
	runs := fmt.Sprintf("/proc/%d", pid) // the folder of a thread that still runs, and so has a program
	if hasEnded(s.state) {
		if tid, state := otherThread(pid); tid != 0 {
			runs, p.state = fmt.Sprintf("/proc/%d/task/%d", pid, tid), state
		}
	}
	p.exe, _ = os.Readlink(runs + "/exe")
	args, _ := os.ReadFile(runs + "/cmdline")
	p.args = string(args[:min(len(args), maxArgs)])
	counters, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	p.bytes = parseIO(counters)
	return p, true
}
