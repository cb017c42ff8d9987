package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/oneshot"
)

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

// runSMI runs one query of nvidia-smi, the program at this path, and returns its output; "" if there are no GPUs.
// When the timeout expires or ctx ends, it kills nvidia-smi and all processes that nvidia-smi has started.
func runSMI(ctx context.Context, program string, timeout time.Duration, query string) (string, error) {
	var out, errs oneshot.Head
	argv := []string{program, query, "--format=csv,noheader"}
	err := oneshot.Command{Argv: argv, Stdout: &out, Stderr: &errs, Limit: timeout}.Run(ctx)
	switch {
	case errors.Is(err, oneshot.ErrLimit):
		return "", fmt.Errorf("%w: %w", errSilent, err)
	case ctx.Err() != nil:
		return "", err
	case noDevices(out.String()):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%w%s", err, complaint(errs.String()+"\n"+out.String()))
	case out.Cut():
		return "", fmt.Errorf("it printed more than %d MiB", oneshot.MaxHead>>20)
	}
	return out.String(), nil
}

// noDevices recognizes the output of a working driver without GPUs. The exit status varies.
func noDevices(out string) bool {
	return strings.HasPrefix(strings.TrimSpace(out), "No devices were found")
}

// complaint returns the first line that a failed nvidia-smi printed, for the end of its error.
func complaint(printed string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(printed), "\n")
	if line == "" {
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
