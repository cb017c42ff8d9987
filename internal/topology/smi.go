package topology

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killGrace is how long bounded waits for nvidia-smi to end after SIGKILL.
const killGrace = 2 * time.Second

// askSMI runs nvidia-smi, the program at this path, and returns the GPUs by index.
func askSMI(ctx context.Context, program string, timeout time.Duration) ([]GPU, error) {
	out, err := runSMI(ctx, program, timeout, "--query-gpu=index,pci.bus_id,uuid")
	switch {
	case err == nil:
	case errors.Is(err, errSilent):
		return nil, fmt.Errorf("count GPUs with %s: %w: set CUDA_VISIBLE_DEVICES or give the number of workers", program, err)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("count GPUs with %s: %w", program, err)
	default:
		return nil, fmt.Errorf(
			"count GPUs with %s: %w: repair it, set CUDA_VISIBLE_DEVICES or give the number of workers",
			program,
			err,
		)
	}
	gpus, err := parseSMI(out)
	if err != nil {
		return nil, fmt.Errorf("count GPUs with %s: %w", program, err)
	}
	return gpus, nil
}

// errSilent means that nvidia-smi exceeded its timeout.
var errSilent = errors.New("no answer")

// runSMI runs one query of nvidia-smi, the program at this path, and returns its output, which is empty without GPUs.
// When the timeout expires or ctx ends, it kills nvidia-smi and all processes that nvidia-smi has started.
func runSMI(ctx context.Context, program string, timeout time.Duration, query string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, query, "--format=csv,noheader")
	// With its own process group, the children of a wrapper script are killed too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killGrace / 2

	var out []byte
	var err error
	ended := bounded(ctx, killGrace, func() { out, err = cmd.Output() })
	if ctx.Err() != nil {
		stuck := ""
		if !ended {
			stuck = ", and SIGKILL does not end it: its driver hangs in the kernel"
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", fmt.Errorf("%w within %v%s", errSilent, timeout, stuck)
		}
		return "", fmt.Errorf("%w%s", ctx.Err(), stuck)
	}
	if noDevices(out) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w%s", err, complaint(out, err))
	}
	return string(out), nil
}

// bounded runs the function and reports whether it has returned. It gives up when grace has passed after the end of
// ctx: a process that hangs in the kernel survives SIGKILL, and waiting for it cannot be interrupted.
func bounded(ctx context.Context, grace time.Duration, run func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(grace):
		return false
	}
}

// noDevices recognizes the output of a working driver without GPUs. The exit status varies.
func noDevices(out []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(out), []byte("No devices were found"))
}

// complaint returns the first line that a failed nvidia-smi printed, for the end of its error.
func complaint(out []byte, err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		out = append(append(bytes.TrimSpace(e.Stderr), '\n'), out...)
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
	if len(line) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.200s)", line)
}

// parseSMI reads lines of "index, PCI address, UUID".
func parseSMI(out string) ([]GPU, error) {
	var gpus []GPU
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		fields := strings.Split(line, ", ")
		if len(fields) != 3 {
			return nil, fmt.Errorf("it printed %.200q in place of index, PCI address and UUID", line)
		}
		index, err := strconv.ParseUint(fields[0], 10, 31)
		if err != nil {
			return nil, fmt.Errorf("it printed %.200q, which does not start with an index", line)
		}
		pci, err := normalizePCI(fields[1])
		if err != nil {
			return nil, fmt.Errorf("it printed %.200q: %w", line, err)
		}
		gpus = append(gpus, GPU{ID: strconv.FormatUint(index, 10), PCI: pci, UUID: fields[2]})
	}
	slices.SortFunc(gpus, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	for i, gpu := range gpus {
		if gpu.ID != strconv.Itoa(i) {
			return nil, fmt.Errorf("it lists GPU index %s where %d is expected", gpu.ID, i)
		}
	}
	return gpus, nil
}
