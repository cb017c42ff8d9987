package topology

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ComputeApps asks nvidia-smi which processes use GPUs, and for the GPUs' load. Its methods may be called concurrently.
type ComputeApps struct {
	program string
	timeout time.Duration
}

// FindComputeApps finds nvidia-smi on PATH. It returns nil if there is no nvidia-smi, if the driver lists no GPU, or if
// CUDA_VISIBLE_DEVICES hides all GPUs. It runs nothing, and it ignores the option NeedPCI.
func FindComputeApps(opts GPUOptions) *ComputeApps {
	opts = opts.withDefaults()
	if list, chosen := opts.Env("CUDA_VISIBLE_DEVICES"); chosen && len(parseVisible(list)) == 0 {
		return nil
	}
	if gpus, known := procGPUs(opts.Root); known && len(gpus) == 0 {
		return nil
	}
	program := FindSMI(opts.Env)
	if program == "" {
		return nil
	}
	return &ComputeApps{program: program, timeout: opts.Timeout}
}

// InUse returns the processes among pids that use a GPU, as "pid 42 (python3)". It fails if nvidia-smi fails, or
// exceeds the timeout of the options.
func (c *ComputeApps) InUse(ctx context.Context, pids map[int]bool) ([]string, error) {
	out, err := runSMI(ctx, c.program, c.timeout, "--query-compute-apps=pid,process_name")
	if err != nil {
		return nil, fmt.Errorf("ask %s which processes use GPUs: %w", c.program, err)
	}
	return parseComputeApps(out, pids), nil
}

// parseComputeApps reads lines of "pid, process name". A process has a line for each of its GPUs. In a container a
// pid may be missing, or belong to another pid namespace; parseComputeApps skips such lines.
func parseComputeApps(out string, pids map[int]bool) []string {
	var using []string
	seen := make(map[int]bool)
	for line := range strings.Lines(out) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), ",")
		pid, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || !pids[pid] || seen[pid] {
			continue
		}
		seen[pid] = true
		using = append(using, fmt.Sprintf("pid %d (%.200s)", pid, strings.TrimSpace(name)))
	}
	return using
}

// GPULoad is the load of one GPU.
type GPULoad struct {
	// Index is the GPU's index in nvidia-smi.
	Index int
	// Utilization is the share of recent time in which the GPU was busy, in percent; -1 if unknown.
	Utilization int
	// MemoryUsed and MemoryTotal are in bytes; -1 if unknown.
	MemoryUsed, MemoryTotal int64
}

// Load asks nvidia-smi for the load of all GPUs of the machine. It fails if nvidia-smi fails, or exceeds the timeout
// of the options.
func (c *ComputeApps) Load(ctx context.Context) ([]GPULoad, error) {
	out, err := runSMI(ctx, c.program, c.timeout, "--query-gpu=index,utilization.gpu,memory.used,memory.total")
	if err == nil {
		var gpus []GPULoad
		if gpus, err = parseLoad(out); err == nil {
			return gpus, nil
		}
	}
	return nil, fmt.Errorf("ask %s for the GPUs' load: %w", c.program, err)
}

// parseLoad reads lines of "0, 34 %, 1024 MiB, 81559 MiB". Text such as [N/A] stands for an unknown value.
func parseLoad(out string) ([]GPULoad, error) {
	var gpus []GPULoad
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		fields := strings.Split(line, ",")
		if len(fields) != 4 {
			return nil, fmt.Errorf("it printed %.200q in place of index, utilization and memory", line)
		}
		index, err := strconv.ParseUint(fields[0], 10, 31)
		if err != nil {
			return nil, fmt.Errorf("it printed %.200q, which does not start with an index", line)
		}
		g := GPULoad{Index: int(index), Utilization: int(quantity(fields[1], " %", 1))}
		g.MemoryUsed, g.MemoryTotal = quantity(fields[2], " MiB", 1<<20), quantity(fields[3], " MiB", 1<<20)
		gpus = append(gpus, g)
	}
	return gpus, nil
}

// quantity reads a number with a unit. It returns -1 for any other text.
func quantity(field, unit string, scale int64) int64 {
	number, ok := strings.CutSuffix(strings.TrimSpace(field), unit)
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil {
		return -1
	}
	return int64(n) * scale
}
