package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KernelLog is what the kernel's log says of workers.
type KernelLog struct {
	Readable bool
	Kills    []OOMKill
	Xids     []XidEvent
}

// OOMKill is one process that the OOM killer took.
type OOMKill struct {
	Time   time.Time
	PID    int // in the machine's first pid namespace
	Name   string
	RSS    int64 // in bytes
	Cgroup bool  // because of a cgroup's limit, not for want of memory in the machine
}

// XidEvent is a fault that NVIDIA's driver has reported.
type XidEvent struct {
	Time time.Time
	PID  int // 0 where the driver does not tell
	Text string
}

// firstPIDs is the name of the machine's first pid namespace.
const firstPIDs = "pid:[4026531836]"

// maxKernelLog bounds what is read of the kernel's log, in records.
const maxKernelLog = 1 << 16

// ReadKernelLog reads what the kernel has logged since then, as far as this user may. root is the file system of the machine.
func ReadKernelLog(root fs.FS, since time.Time) KernelLog {
	uptime, err := fs.ReadFile(root, "proc/uptime")
	if err != nil {
		return KernelLog{}
	}
	fields := strings.Fields(string(uptime))
	if len(fields) == 0 {
		return KernelLog{}
	}
	up, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return KernelLog{}
	}
	if ns, err := fs.ReadLink(root, "proc/self/ns/pid"); err == nil && ns != firstPIDs {
		return KernelLog{} // its pids are not those that we know
	}
	boot := time.Now().Add(-time.Duration(up * float64(time.Second)))
	records, err := readKmsg("/dev/kmsg")
	if err != nil {
		return KernelLog{}
	}
	// The log's clock is not that of the uptime: it is never adjusted, and drifts by a second a day or so.
	drift := time.Second + time.Duration(up*2e-5*float64(time.Second))
	return parseKmsg(records, boot, since.Add(-drift))
}

// readKmsg reads all records that are there; each read returns one. The runtime's poller would wait for more.
func readKmsg(name string) (records []string, err error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open kernel log: %w", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	buf := make([]byte, 8<<10)
	for range maxKernelLog {
		n, err := syscall.Read(fd, buf)
		switch {
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EINTR): // a record was overwritten meanwhile
		case errors.Is(err, syscall.EAGAIN), err == nil && n <= 0:
			return records, nil
		case err != nil:
			return nil, fmt.Errorf("read kernel log: %w", err)
		case bytes.Contains(buf[:n], []byte("Killed process")) || bytes.Contains(buf[:n], []byte("NVRM: Xid")):
			records = append(records, string(buf[:n]))
		}
	}
	return records, nil
}

var (
	killedLine = regexp.MustCompile(`(Memory cgroup out|Out) of memory: Killed process (\d+) \((.*)\)[^()]*anon-rss:(\d+)kB(?:, file-rss:(\d+)kB)?(?:, shmem-rss:(\d+)kB)?`)
	nvrmLine   = regexp.MustCompile(`NVRM: Xid \([^)]*\): .*`)
	xidPID     = regexp.MustCompile(`pid='?(\d+)`)
)

// parseKmsg reads records of /dev/kmsg, "priority,sequence,microseconds,flags;text", that are not older than since. boot is when the
// kernel's clock was 0.
func parseKmsg(records []string, boot, since time.Time) KernelLog {
	out := KernelLog{Readable: true}
	for _, r := range records {
		head, text, _ := strings.Cut(r, ";")
		fields := strings.Split(head, ",")
		if len(fields) < 3 {
			continue
		}
		micros, err := strconv.ParseInt(fields[2], 10, 64)
		at := boot.Add(time.Duration(micros) * time.Microsecond)
		if err != nil || at.Before(since) {
			continue
		}
		text, _, _ = strings.Cut(text, "\n")
		if m := killedLine.FindStringSubmatch(text); m != nil {
			k := OOMKill{Time: at, Name: m[3], Cgroup: m[1] != "Out"}
			k.PID, _ = strconv.Atoi(m[2])
			for _, kib := range m[4:] {
				n, _ := strconv.ParseInt(kib, 10, 64)
				k.RSS += n << 10
			}
			out.Kills = append(out.Kills, k)
		} else if line := nvrmLine.FindString(text); line != "" {
			x := XidEvent{Time: at, Text: tidy(line)}
			if m := xidPID.FindStringSubmatch(line); m != nil {
				x.PID, _ = strconv.Atoi(m[1])
			}
			out.Xids = append(out.Xids, x)
		}
	}
	return out
}

// XidsOf returns what the driver reported of a process, and with nobodys also what it reported of none.
func (l KernelLog) XidsOf(pid int, nobodys bool) (found []Finding) {
	for _, x := range l.Xids {
		if x.PID == pid || nobodys && x.PID == 0 {
			kind := Xid
			if x.PID == 0 { // it may be of another job's GPU
				kind = Suspected
			}
			found = append(found, Finding{kind, x.Time, x.Text})
		}
	}
	return found
}
