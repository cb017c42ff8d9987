package proctree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of the report on a process that survives SIGKILL.
const (
	maxStuckThreads = 4
	maxStuckFrames  = 20
	// stuckTimeout limits how long the report may take: if a process hangs in the middle of execve, the kernel also
	// blocks a process that reads its stack.
	stuckTimeout = 2 * time.Second
)

// DescribeStuck describes processes that do not die, and where in the kernel they wait, one line each.
func DescribeStuck(ps []Process) []string {
	out := make([]string, 0, len(ps))
	for _, p := range ps {
		out = append(out, p.String())
	}
	if !ProcIsOurs() {
		return out
	}
	type place struct {
		i    int
		text string
	}
	places := make(chan place, len(ps))
	go func() { // it may block in the kernel, so DescribeStuck does not wait for it
		defer close(places)
		for i, p := range ps {
			places <- place{i, stuckIn("/proc", p)}
		}
	}()
	for timeout := time.After(stuckTimeout); ; {
		select {
		case at, more := <-places:
			if !more {
				return out
			}
			out[at.i] += at.text
		case <-timeout:
			return out
		}
	}
}

// stuckIn names the kernel function in which each thread of p in uninterruptible sleep waits, with its kernel stack.
// The result starts with ", ", or is "". It mentions what the kernel does not show.
func stuckIn(proc string, p Process) string {
	if errors.Is(syscall.Kill(p.PID, 0), syscall.EPERM) {
		return ", which this user may not signal"
	}
	dir := filepath.Join(proc, strconv.Itoa(p.PID), "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var text strings.Builder
	text.WriteString(tracerOf(proc, p.PID))
	n := 0
	for _, t := range threads {
		data, err := os.ReadFile(filepath.Join(dir, t.Name(), "stat"))
		stat, ok := parseStat(data)
		if err != nil || !ok || stat.State != 'D' {
			continue
		}
		if n++; n > maxStuckThreads {
			continue
		}
		who := ","
		if stat.PID != p.PID {
			who = fmt.Sprintf(", thread %d (%s)", stat.PID, stat.Comm)
		}
		fmt.Fprintf(&text, "%s in uninterruptible sleep %s, %s", who, waitChannel(dir, t.Name()), kernelStack(dir, t.Name()))
	}
	if n > maxStuckThreads {
		fmt.Fprintf(&text, ", and %d more threads", n-maxStuckThreads)
	}
	return text.String()
}

// waitChannel names the kernel function in which a thread sleeps. The kernel writes 0 if it hides the function.
func waitChannel(dir, thread string) string {
	data, err := os.ReadFile(filepath.Join(dir, thread, "wchan"))
	if name := strings.TrimSpace(string(data)); err == nil && name != "" && name != "0" {
		return "in " + name
	}
	return "(the kernel does not say where)"
}

// kernelStack returns the functions on a thread's kernel stack, the innermost first.
func kernelStack(dir, thread string) string {
	data, err := os.ReadFile(filepath.Join(dir, thread, "stack"))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "kernel stack for root only"
	case err != nil:
		return fmt.Sprintf("no kernel stack: %v", errors.Unwrap(err))
	}
	var frames []string
	for line := range strings.Lines(string(data)) {
		_, frame, _ := strings.Cut(strings.TrimSpace(line), "] ") // [<0>] name+0x1/0x2 [module]
		if name, _, _ := strings.Cut(frame, "+"); name != "" {
			frames = append(frames, name)
		}
	}
	switch {
	case len(frames) == 0:
		return "no kernel stack"
	case len(frames) > maxStuckFrames:
		frames = append(frames[:maxStuckFrames], "…")
	}
	return "kernel stack: " + strings.Join(frames, " < ")
}

// tracerOf names the debugger of a process; only the debugger learns how the process exits. The result starts with ",
// ", or is "".
func tracerOf(proc string, pid int) string {
	status, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	tracer := StatusField(status, "TracerPid:")
	if tracer == "" || tracer == "0" {
		return ""
	}
	name, _ := os.ReadFile(filepath.Join(proc, tracer, "comm"))
	return fmt.Sprintf(", held by its tracer, pid %s (%s): end that debugger", tracer, strings.TrimSpace(string(name)))
}
