package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU limits the CPU numbers that ParseCPUList accepts, so that a damaged list cannot allocate gigabytes. Linux
// supports at most 8192 CPUs (NR_CPUS on x86).
const maxCPU = 1<<16 - 1

// ParseCPUList reads the kernel's notation for a set of CPUs or nodes, such as "0-3,8". It returns the numbers in
// ascending order, each once. White space around the list is ignored, and an empty list is an empty set. The error
// names the list and the part that is wrong.
func ParseCPUList(list string) ([]int, error) {
	trimmed := strings.TrimSpace(list)
	if trimmed == "" {
		return nil, nil
	}
	var member []bool
	for part := range strings.SplitSeq(trimmed, ",") {
		first, last, err := parseCPURange(part)
		if err != nil {
			return nil, fmt.Errorf("parse CPU list %q: %w", list, err)
		}
		if last >= len(member) {
			member = append(member, make([]bool, last+1-len(member))...)
		}
		for cpu := first; cpu <= last; cpu++ {
			member[cpu] = true
		}
	}
	var cpus []int
	for cpu, in := range member {
		if in {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// parseCPURange reads "8" or "0-3".
func parseCPURange(part string) (first, last int, err error) {
	low, high, isRange := strings.Cut(part, "-")
	if !isRange {
		high = low
	}
	if first, err = parseCPU(low); err != nil {
		return 0, 0, err
	}
	if last, err = parseCPU(high); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("range %q is reversed", part)
	}
	return first, last, nil
}

func parseCPU(text string) (int, error) {
	cpu, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a CPU number", text)
	}
	if cpu > maxCPU {
		return 0, fmt.Errorf("CPU number %d is above %d", cpu, maxCPU)
	}
	return int(cpu), nil
}

// FormatCPUList returns a set of CPUs in the kernel's notation, in its shortest form: [0 1 2 3 8] is "0-3,8". Order and
// repetition in cpus do not matter.
func FormatCPUList(cpus []int) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(cpus)))
	var out strings.Builder
	for i := 0; i < len(sorted); {
		end := i + 1
		for end < len(sorted) && sorted[end] == sorted[end-1]+1 {
			end++
		}
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(sorted[i]))
		if end-i > 1 {
			out.WriteString("-" + strconv.Itoa(sorted[end-1]))
		}
		i = end
	}
	return out.String()
}
