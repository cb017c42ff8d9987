package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/cgroup"
	"github.com/elasticrun/elasticrun/internal/oneshot"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// nameBound bounds a name lookup.
const nameBound = 2 * time.Second

// output runs a program and returns the last line of its output. Its error is one line. After bound, or when ctx ends,
// it kills the program's process group. Children that outlive a program that exited by itself are left alone.
func output(ctx context.Context, bound time.Duration, env []string, program string, args ...string) (string, error) {
	var out oneshot.Tail
	c := oneshot.Command{Argv: append([]string{program}, args...), Env: env, Stdout: &out, Stderr: &out, Limit: bound}
	err := c.Run(ctx)
	last := report.OneLine(out.LastLine())
	if err != nil && last != "" {
		err = fmt.Errorf("%w (%s)", err, last)
	}
	return last, err
}

// readHostName looks up this machine's own name.
func readHostName(ctx context.Context) (n Name) {
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
	ifaces, err := machine.Interfaces()
	if n.Err = err; err != nil {
		return n
	}
	for _, a := range found {
		n.Addrs = append(n.Addrs, a.Unmap())
	}
	n.Local = machine.LocalAddrs(n.Addrs, ifaces)
	return n
}

// readDisk reads the file system of a folder, or of its nearest existing parent.
func readDisk(what, folder string) Disk {
	d := Disk{What: what, Path: folder}
	var s unix.Statfs_t
	for path := folder; ; path = filepath.Dir(path) {
		d.Err = unix.Statfs(path, &s)
		if !errors.Is(d.Err, fs.ErrNotExist) || path == filepath.Dir(path) || what == shmName {
			break
		}
	}
	if d.Err != nil {
		d.Err = fmt.Errorf("%s: %w", folder, d.Err)
		return d
	}
	block := uint64(s.Bsize) // its type differs by platform; it is positive
	d.Total, d.Free = s.Blocks*block, s.Bavail*block
	d.Files, d.FreeFiles = s.Files, s.Ffree
	return d
}

// readGPUs reads the drivers' files, and asks nvidia-smi unless the GPUs are of another vendor.
func readGPUs(ctx context.Context, kind topology.Kind) (g GPUs) {
	visible, err := topology.GPUs(ctx, topology.GPUOptions{Kind: kind})
	if err != nil {
		g.Err = err
		return g
	}
	g.Visible = len(visible)
	if installed, err := topology.KnownGPUs(topology.GPUOptions{Kind: kind, Env: withoutLists}); err == nil {
		if g.Installed = len(installed); g.Installed > 0 && installed[0].Vendor != topology.NVIDIA {
			g.Vendor = installed[0].Vendor
			return g
		}
	}
	g.Installed = 0
	if g.Program = topology.FindSMI(os.LookupEnv); g.Program != "" {
		g.Health, g.Err = topology.Health(ctx, topology.GPUOptions{})
	}
	return g
}

// withoutLists is the environment without the variables that select GPUs.
func withoutLists(name string) (string, bool) {
	switch name {
	case "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
		"ONEAPI_DEVICE_SELECTOR":
		return "", false
	}
	return os.LookupEnv(name)
}

// readLimits reads the limits of this process, and those of the kernel below root, the root of the file system.
func readLimits(root fs.FS) Limits {
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

// readMemory reads the memory of the machine and of this cgroup below root, the root of the file system.
func readMemory(root fs.FS) (m Memory) {
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
		if m.CgroupMax = number(cgroup.Read(root, dir, "memory.max")); m.CgroupMax == unlimited {
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

// rlimit returns the hard limit on a resource.
func rlimit(resource int) uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return 0
	}
	if limit.Max > math.MaxInt64 || limit.Max == unix.RLIM_INFINITY {
		return unlimited
	}
	return limit.Max
}

// text returns the content of a small file, or nothing.
func text(root fs.FS, name string) string {
	data, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(data))
}

// number parses a number or "max"; it returns 0 for anything else.
func number(s string) uint64 {
	if s == "max" {
		return unlimited
	}
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
