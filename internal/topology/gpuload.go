package topology

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// GPULoad is what one GPU of this machine has to do.
type GPULoad struct {
	// Index is nvidia-smi's.
	Index int
	// Utilization is the share of the last moments in which it was busy, in percent; -1 where the driver does not tell.
	Utilization int
	// MemoryUsed and MemoryTotal are in bytes; -1 where the driver does not tell.
	MemoryUsed, MemoryTotal int64
}

// Load asks nvidia-smi what all GPUs of the machine have to do. It gets the options' timeout; an error says that it did not answer by then, or
// failed.
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

// parseLoad reads lines of "0, 34 %, 1024 MiB, 81559 MiB", in which [N/A] and the like stand for what is not known.
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

// quantity reads a number with a unit; -1 for anything else.
func quantity(field, unit string, scale int64) int64 {
	number, ok := strings.CutSuffix(strings.TrimSpace(field), unit)
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil {
		return -1
	}
	return int64(n) * scale
}
