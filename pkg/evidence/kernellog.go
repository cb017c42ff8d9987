package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

// KernelLog is what the kernel's log says about workers.
type KernelLog struct {
	Readable bool
	Kills    []OOMKill
	Xids     []XidEvent
}

// OOMKill is one process that the OOM killer has killed.
type OOMKill struct {
	Time   time.Time
	PID    int // in the machine's initial pid namespace
	Name   string
	RSS    int64 // in bytes
	Cgroup bool  // because of a cgroup's limit, not because the machine is out of memory
}

// XidEvent is a fault that NVIDIA's driver has reported.
type XidEvent struct {
	Time time.Time
	PID  int // 0 if the driver names none
	Text string
}

// initialPIDNamespace is the name of the machine's initial pid namespace.
const initialPIDNamespace = "pid:[4026531836]"

// maxKernelLog is the most records of the kernel's log that are read.
const maxKernelLog = 1 << 16

// kernelTail reads what the kernel logs after a mark. The whole log may have thousands of records, which take tens of
// milliseconds to read: too long for a restart.
type kernelTail struct {
	kmsg   *os.File // nil if it may not be read
	marked time.Time
}

// openKernelTail opens the log at its end. The tail reads nothing if this user may not read the log, or if the log's
// pids belong to another pid namespace.
func openKernelTail(name string, root fs.FS) *kernelTail {
	if ns, err := fs.ReadLink(root, "proc/self/ns/pid"); err == nil && ns != initialPIDNamespace {
		return &kernelTail{}
	}
	kmsg, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return &kernelTail{}
	}
	t := &kernelTail{kmsg: kmsg}
	t.mark()
	return t
}

// mark skips what was logged so far.
func (t *kernelTail) mark() {
	t.marked = time.Now()
	if t.kmsg == nil {
		return
	}
	if _, err := t.kmsg.Seek(0, io.SeekEnd); err != nil {
		t.close()
	}
}

func (t *kernelTail) close() {
	if t.kmsg != nil {
		_ = t.kmsg.Close()
		t.kmsg = nil
	}
}

// read returns what was logged since the mark or the last read.
func (t *kernelTail) read(root fs.FS, now time.Time) KernelLog {
	if t.kmsg == nil {
		return KernelLog{}
	}
	boot, err := bootTime(root, now)
	if err != nil {
		return KernelLog{}
	}
	records, err := t.records()
	if err != nil {
		return KernelLog{}
	}
	return parseKmsg(records, boot, t.marked, now)
}

// WholeKernelLog returns everything in the kernel's log. That may take tens of milliseconds.
func WholeKernelLog(now time.Time) KernelLog { return wholeLog("/dev/kmsg", os.DirFS("/"), now) }

func wholeLog(name string, root fs.FS, now time.Time) KernelLog {
	kmsg, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return KernelLog{}
	}
	t := kernelTail{kmsg: kmsg} // at its beginning
	defer t.close()
	return t.read(root, now)
}

// bootTime returns when the machine's uptime was 0.
func bootTime(root fs.FS, now time.Time) (time.Time, error) {
	uptime, err := fs.ReadFile(root, "proc/uptime")
	if err != nil {
		return time.Time{}, err
	}
	seconds, _, _ := strings.Cut(string(uptime), " ")
	up, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("uptime: %w", err)
	}
	return now.Add(-time.Duration(up * float64(time.Second))), nil
}

// records returns the relevant records; each read of the file returns one record. It avoids Go's poller, which would
// wait for more records.
func (t *kernelTail) records() (records []string, err error) {
	conn, err := t.kmsg.SyscallConn()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 8<<10)
	for range maxKernelLog {
		var n int
		var readErr error
		if err := conn.Control(func(fd uintptr) { n, readErr = syscall.Read(int(fd), buf) }); err != nil {
			return nil, err
		}
		switch {
		case errors.Is(readErr, syscall.EPIPE), errors.Is(readErr, syscall.EINTR):
			// EPIPE: a record was overwritten meanwhile
		case errors.Is(readErr, syscall.EAGAIN), readErr == nil && n <= 0:
			return records, nil
		case readErr != nil:
			return nil, fmt.Errorf("read kernel log: %w", readErr)
		case bytes.Contains(buf[:n], []byte("Killed process")) || bytes.Contains(buf[:n], []byte("NVRM: Xid")):
			records = append(records, string(buf[:n]))
		}
	}
	return records, nil
}

var (
	killedLine = lazyregexp.New(`(Memory cgroup out|Out) of memory: Killed process (\d+) \((.*)\)[^()]*` +
		`anon-rss:(\d+)kB(?:, file-rss:(\d+)kB)?(?:, shmem-rss:(\d+)kB)?`)
	nvrmLine = lazyregexp.New(`NVRM: Xid \([^)]*\): .*`)
	xidPID   = lazyregexp.New(`pid='?(\d+)`)
)

// parseKmsg parses records of /dev/kmsg, "priority,sequence,microseconds,flags;text", that were written between since
// and until. boot is when the kernel's clock was 0. The log's clock is never adjusted, and drifts by about a second a
// day.
func parseKmsg(records []string, boot, since, until time.Time) KernelLog {
	out := KernelLog{Readable: true}
	for _, r := range records {
		head, text, _ := strings.Cut(r, ";")
		fields := strings.Split(head, ",")
		if len(fields) < 3 {
			continue
		}
		micros, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			continue
		}
		at := boot.Add(time.Duration(micros) * time.Microsecond)
		if at.Before(since) {
			at = since
		} else if at.After(until) {
			at = until
		}
		text, _, _ = strings.Cut(text, "\n")
		if m := killedLine().FindStringSubmatch(text); m != nil {
			k := OOMKill{Time: at, Name: m[3], Cgroup: m[1] != "Out"}
			k.PID, _ = strconv.Atoi(m[2])
			for _, kib := range m[4:] {
				n, _ := strconv.ParseInt(kib, 10, 64)
				k.RSS += n << 10
			}
			out.Kills = append(out.Kills, k)
		} else if line := nvrmLine().FindString(text); line != "" {
			x := XidEvent{Time: at, Text: tidy(line)}
			if m := xidPID().FindStringSubmatch(line); m != nil {
				x.PID, _ = strconv.Atoi(m[1])
			}
			out.Xids = append(out.Xids, x)
		}
	}
	return out
}

// XidsOf returns what the driver reported about a process and, with unattributed, the reports that name no process.
func (l KernelLog) XidsOf(pid int, unattributed bool) (found []failure.Finding) {
	for _, x := range l.Xids {
		if x.PID == pid || unattributed && x.PID == 0 {
			kind := failure.Xid
			if x.PID == 0 { // it may be about the GPU of another job
				kind = failure.Suspected
			}
			found = append(found, finding(kind, x.Time, x.Text))
		}
	}
	return found
}
