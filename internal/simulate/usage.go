package simulate

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"time"
)

// Usage is what a process has taken so far.
type Usage struct {
	CPU float64 `json:"cpu_seconds"` // user and system
	RSS int64   `json:"peak_rss_bytes"`
}

func usage() (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}, fmt.Errorf("find out what this process takes: %w", err)
	}
	rss := r.Maxrss
	if runtime.GOOS != "darwin" { // which counts bytes, and others KiB
		rss <<= 10
	}
	return Usage{CPU: (time.Duration(r.Utime.Nano()) + time.Duration(r.Stime.Nano())).Seconds(), RSS: rss}, nil
}

// MostAgents is how many agents this process can have connections to at a time, as far as its open files are concerned.
func MostAgents() (int, error) {
	var files syscall.Rlimit // the runtime has raised it to what is allowed
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("find out how many files may be open: %w", err)
	}
	const others = 64
	return int(min(files.Cur, math.MaxInt32)) - others, nil
}
