package topology

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// GPULoad is the load of one GPU.
type GPULoad struct {
	// Index is the GPU's index in nvidia-smi.
	Index int
	// Utilization is the share of recent time in which the GPU was busy, in percent; -1 if unknown.
	Utilization int
	// MemoryUsed and MemoryTotal are in bytes; -1 if unknown.
	MemoryUsed, MemoryTotal int64
}

// Load asks nvidia-smi for the load of all GPUs of the machine. It fails if nvidia-smi fails, or exceeds the timeout of the
// options.
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
