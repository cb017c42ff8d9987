package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/cgroup"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// startBound is how long an interpreter may take to start and end, nameBound how long the name service.
const (
	startBound = 30 * time.Second
	nameBound  = 2 * time.Second
)

// ReadProgram starts a program with arguments with which it does nothing and ends.
func ReadProgram(ctx context.Context, path string, args ...string) Program {
	began := time.Now()
	_, err := Output(ctx, startBound, os.Environ(), path, args...)
	return Program{Path: path, Took: time.Since(began), Err: err}
}

// killGrace is how long a killed program may take to end before it is left behind: one that hangs in the kernel outlives SIGKILL.
const killGrace = 2 * time.Second

// Output runs a program within a time and returns the last line that it writes. Its error is one line. When the time is over, or ctx ends, the program
// is killed with its process group. What it has started and left behind in other cases is its own matter, or its subreaper's.
func Output(ctx context.Context, bound time.Duration, env []string, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("no end within %v", bound))
	defer cancel()
	var out lastBytes
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killGrace / 2
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(killGrace):
			return "", fmt.Errorf("%w, and SIGKILL does not end it: it hangs in the kernel", context.Cause(ctx))
		}
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // it has ended with 0, and something that it has started holds its output
		err = nil
	}
	last := out.lastLine()
	if err != nil && last != "" {
		err = fmt.Errorf("%w (%s)", err, last)
	}
	return last, err
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct{ kept []byte }

const keptBytes = 4 << 10

func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[max(0, len(p)-keptBytes):]...)
	l.kept = l.kept[max(0, len(l.kept)-keptBytes):]
	return len(p), nil
}

// lastLine is the last line that is not empty, shortened.
func (l *lastBytes) lastLine() string {
	text := strings.TrimSpace(string(l.kept))
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return report.OneLine(text[:min(len(text), 300)])
}

// ReadHostName looks up this machine's own name.
func ReadHostName(ctx context.Context) (n Name) {
	if n.Host, n.Err = os.Hostname(); n.Err != nil {
		return n
	}
	ctx, cancel := context.WithTimeout(ctx, nameBound)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", n.Host)
	if err != nil {
		n.Err = errors.New("it cannot be looked up")
		return n
	}
	ifaces, err := elastic.Interfaces()
	if n.Err = err; err != nil {
		return n
	}
	for _, a := range found {
		n.Addrs = append(n.Addrs, a.Unmap())
	}
	n.Local = elastic.Local(n.Addrs, ifaces)
	return n
}

// ReadDisk looks at the file system of a folder, or of the nearest one above it that there is.
func ReadDisk(what, folder string) Disk {
	d := Disk{What: what, Path: folder}
	var s unix.Statfs_t
	for path := folder; ; path = filepath.Dir(path) {
		d.Err = unix.Statfs(path, &s)
		if !errors.Is(d.Err, fs.ErrNotExist) || path == filepath.Dir(path) || what == ShmName {
			break
		}
	}
	if d.Err != nil {
		d.Err = fmt.Errorf("%s: %w", folder, d.Err)
		return d
	}
	block := uint64(s.Bsize) // of the platform's type, and above 0
	d.Total, d.Free = s.Blocks*block, s.Bavail*block
	d.Files, d.FreeFiles = s.Files, s.Ffree
	return d
}

// ReadGPUs asks nvidia-smi.
func ReadGPUs(ctx context.Context) (g GPUs) {
	g.Program = topology.FindSMI(os.LookupEnv)
	if visible, err := topology.GPUs(ctx, topology.GPUOptions{}); err != nil {
		g.Err = err
		return g
	} else if g.Visible = len(visible); g.Program != "" {
		g.Health, g.Err = topology.Health(ctx, topology.GPUOptions{})
	}
	return g
}

// ReadLimits reads the limits of this process, and the kernel's in root, which is that of the file system.
func ReadLimits(root fs.FS) Limits {
	l := Limits{
		NoFile: rlimit(unix.RLIMIT_NOFILE), MemLock: rlimit(unix.RLIMIT_MEMLOCK), Core: rlimit(unix.RLIMIT_CORE),
		CorePattern: text(root, "proc/sys/kernel/core_pattern"), PIDMax: number(text(root, "proc/sys/kernel/pid_max")),
	}
	if dir := ownCgroup(root, "pids"); dir != "" {
		l.CgroupPIDs = number(cgroup.Read(root, dir, "pids.max"))
		l.CgroupPIDsUsed = number(cgroup.Read(root, dir, "pids.current"))
	}
	devices, _ := fs.ReadDir(root, "sys/class/infiniband")
	l.RDMA = len(devices) > 0
	return l
}

// ReadMemory reads what memory there is.
func ReadMemory(root fs.FS) (m Memory) {
	for line := range strings.Lines(text(root, "proc/meminfo")) {
		name, value, _ := strings.Cut(line, ":")
		kib := number(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "MemTotal":
			m.Total = kib << 10
		case "MemAvailable":
			m.Available = kib << 10
		}
	}
	if dir := ownCgroup(root, "memory"); dir != "" {
		if m.CgroupMax = number(cgroup.Read(root, dir, "memory.max")); m.CgroupMax == Unlimited {
			m.CgroupMax = 0
		}
		m.CgroupUsed = number(cgroup.Read(root, dir, "memory.current"))
	}
	return m
}

// ownCgroup returns the folder of the version 2 cgroup of this process that can have the controller; empty for none.
func ownCgroup(root fs.FS, controller string) string {
	for _, group := range cgroup.Find(root, controller) {
		if group.V2 {
			return group.Dir
		}
	}
	return ""
}

// rlimit is the hard limit; Unlimited where there is none.
func rlimit(resource int) uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return 0
	}
	if limit.Max > math.MaxInt64 || limit.Max == unix.RLIM_INFINITY {
		return Unlimited
	}
	return limit.Max
}

// text is a small file's, or empty.
func text(root fs.FS, name string) string {
	data, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(data))
}

// number reads a number, or "max"; 0 where it is neither.
func number(s string) uint64 {
	if s == "max" {
		return Unlimited
	}
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
