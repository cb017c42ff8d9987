package topology

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ComputeApps asks nvidia-smi which processes use GPUs. Its methods may be called concurrently.
type ComputeApps struct {
	program string
	timeout time.Duration
}

// FindComputeApps finds nvidia-smi on PATH. It returns nil if there is no nvidia-smi, if the driver lists no GPU, or if
// CUDA_VISIBLE_DEVICES hides all GPUs. It runs nothing, and it ignores the option NeedPCI.
func FindComputeApps(opts GPUOptions) *ComputeApps {
	root, env := opts.Root, opts.Env
	if root == nil {
		root = os.DirFS("/")
	}
	if env == nil {
		env = os.LookupEnv
	}
	if list, chosen := env("CUDA_VISIBLE_DEVICES"); chosen && len(parseVisible(list)) == 0 {
		return nil
	}
	if gpus, known := procGPUs(root); known && len(gpus) == 0 {
		return nil
	}
	program, err := lookPath(env, "nvidia-smi")
	if err != nil {
		return nil
	}
	return &ComputeApps{program: program, timeout: cmp.Or(opts.Timeout, 10*time.Second)}
}

// InUse returns the processes among pids that use a GPU, as "pid 42 (python3)". It fails if nvidia-smi fails, or exceeds the
// timeout of the options.
func (c *ComputeApps) InUse(ctx context.Context, pids map[int]bool) ([]string, error) {
	out, err := runSMI(ctx, c.program, c.timeout, "--query-compute-apps=pid,process_name")
	if err != nil {
		return nil, fmt.Errorf("ask %s which processes use GPUs: %w", c.program, err)
	}
	return parseComputeApps(out, pids), nil
}

// parseComputeApps reads lines of "pid, process name". A process has a line for each of its GPUs. In a container a pid may
// be missing, or belong to another pid namespace; parseComputeApps skips such lines.
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
