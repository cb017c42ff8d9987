package topology

import (
	"slices"
	"strconv"
	"strings"
)

const (
	gpuPrefix = "GPU-"
	migPrefix = "MIG-"
)

// parseVisible splits the value of CUDA_VISIBLE_DEVICES into the entries that CUDA accepts, by the rules in torch
// 2.14 torch/cuda/__init__.py. The first entry decides whether the list has indices, GPU UUIDs or MIG UUIDs, and the
// first entry of another kind ends the list. A number ends with its digits, so "1st" is 1. A device that is named
// twice makes the list empty.
func parseVisible(value string) []string {
	parse := parseIndex
	for _, prefix := range []string{gpuPrefix, migPrefix} {
		if strings.HasPrefix(strings.TrimSpace(value), prefix) {
			parse = func(entry string) (string, bool) { return entry, strings.HasPrefix(entry, prefix) }
		}
	}
	var entries []string
	for part := range strings.SplitSeq(value, ",") {
		entry, ok := parse(strings.TrimSpace(part))
		if !ok {
			break
		}
		if slices.Contains(entries, entry) {
			return nil
		}
		entries = append(entries, entry)
	}
	return entries
}

// parseIndex returns the number at the start of entry in its shortest form.
func parseIndex(entry string) (string, bool) {
	digits := strings.TrimPrefix(entry, "+")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	index, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return "", false
	}
	return strconv.FormatUint(index, 10), true
}

// selectVisible returns the installed GPUs that entries name, in the order of entries, up to the first entry without
// a GPU.
func selectVisible(entries []string, installed []GPU) []GPU {
	var visible []GPU
	for _, entry := range entries {
		gpu, ok := findVisible(entry, installed)
		if !ok {
			break
		}
		gpu.ID = entry
		visible = append(visible, gpu)
	}
	return visible
}

// findVisible returns the GPU that one entry names. A GPU UUID may be abbreviated if only one GPU matches. If the
// list of installed GPUs cannot confirm the entry (an unknown UUID, or a MIG instance), the entry is accepted, and
// the GPU's address is unknown.
func findVisible(entry string, installed []GPU) (GPU, bool) {
	if index, err := strconv.Atoi(entry); err == nil {
		if index >= len(installed) {
			return GPU{}, false
		}
		return installed[index], true
	}
	prefix, isMIG := entry, false
	if rest, ok := strings.CutPrefix(entry, migPrefix); ok {
		// "MIG-GPU-<uuid>/<instance>/<instance>" names its GPU; the newer "MIG-<uuid>" does not.
		isMIG = true
		prefix, _, _ = strings.Cut(rest, "/")
		if !strings.HasPrefix(prefix, gpuPrefix) {
			return GPU{}, true
		}
	}
	var found []GPU
	unknown := false
	for _, gpu := range installed {
		if gpu.UUID == "" {
			unknown = true
		} else if strings.HasPrefix(gpu.UUID, prefix) {
			found = append(found, gpu)
		}
	}
	if len(found) == 1 {
		return found[0], true
	}
	return GPU{}, len(found) == 0 && (unknown || isMIG)
}

// assumeVisible returns a GPU for every entry. It is used if no source lists the installed GPUs.
func assumeVisible(entries []string) []GPU {
	gpus := make([]GPU, len(entries))
	for i, entry := range entries {
		gpus[i].ID = entry
		if strings.HasPrefix(entry, gpuPrefix) {
			gpus[i].UUID = entry
		}
	}
	return gpus
}
