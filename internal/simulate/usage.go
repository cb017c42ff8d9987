package simulate

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"time"
)

// Usage is the resource usage of a process.
type Usage struct {
	CPU float64 `json:"cpu_seconds"` // user and system
	RSS int64   `json:"peak_rss_bytes"`
}

// TooManyAgentsError is returned by Run if this process cannot have a connection to every agent.
type TooManyAgentsError struct{ Agents, Max int }

func (e *TooManyAgentsError) Error() string {
	return fmt.Sprintf("each of the %d agents needs an open file, and the limit allows %d: raise it with ulimit -n",
		e.Agents, e.Max)
}

func usage() (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}, fmt.Errorf("read the resource usage of this process: %w", err)
	}
	rss := r.Maxrss
	if runtime.GOOS != "darwin" { // Darwin counts bytes, other systems KiB
		rss <<= 10
	}
	return Usage{CPU: (time.Duration(r.Utime.Nano()) + time.Duration(r.Stime.Nano())).Seconds(), RSS: rss}, nil
}

// maxAgents returns how many agents the limit on open files of this process allows.
func maxAgents() (int, error) {
	var files syscall.Rlimit // the Go runtime has raised the soft limit to the hard limit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("read the limit on open files: %w", err)
	}
	const others = 64
	return int(min(files.Cur, math.MaxInt32)) - others, nil
}
