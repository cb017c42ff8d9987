package topology

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// kfdNodes has a folder for each node of ROCm's topology. A node is a CPU, a GPU or a partition of a GPU.
const kfdNodes = "sys/class/kfd/kfd/topology/nodes"

// integratedAMD are the graphics versions of AMD's integrated GPUs, as gfx_target_version has them: 10000 × major + 100
// × minor + stepping. They are the targets marked APU in LLVM's AMDGPUUsage page, "Processors". MI300A is not among
// them: it has the version of MI300X, and is a GPU for computing.
var integratedAMD = [...]string{
	"70000", "80001", "90002", "90009", "90012", "100103", "100303", "100305", "100306", "110003", "110500", "110501",
	"110502", "110503",
}

// amdHardware lists AMD's GPUs in the order of ROCm: that of the nodes. A partition of a GPU has a node of its own. The
// files are those of Linux's drivers/gpu/drm/amd/amdkfd/kfd_topology.c (node_show).
func amdHardware(root fs.FS, open func(fs.FS, string) error) *hardware {
	var found hardware
	nodes := numbered(root, kfdNodes, "")
	if len(nodes) == 0 {
		return &found
	}
	kfd := open(root, "dev/kfd")
	for _, node := range nodes {
		dir := path.Join(kfdNodes, strconv.Itoa(node))
		// The kernel refuses to read the files of a GPU that the cgroup of this process excludes.
		p := properties(root, path.Join(dir, "properties"), " ")
		id, err := fs.ReadFile(root, path.Join(dir, "gpu_id"))
		if p == nil || err != nil || atoi(p["simd_count"]) == 0 || atoi(strings.TrimSpace(string(id))) == 0 {
			continue
		}
		gpu := GPU{
			Vendor: AMD, PCI: kfdPCI(p), UUID: amdUUID(p["unique_id"]),
			Integrated: atoi(p["cpu_cores_count"]) > 0 || slices.Contains(integratedAMD[:], p["gfx_target_version"]),
		}
		access := kfd
		if access == nil {
			access = open(root, "dev/dri/renderD"+strconv.Itoa(atoi(p["drm_render_minor"])))
		}
		found.add(gpu, access)
	}
	number(found.gpus)
	return &found
}

// kfdPCI returns the PCI address of a node. Bits 28 to 31 of the location are the number of the partition.
func kfdPCI(p map[string]string) string {
	location := atoi(p["location_id"]) & 0xffff
	return fmt.Sprintf("%04x:%02x:%02x.%x", atoi(p["domain"]), location>>8, location>>3&0x1f, location&7)
}

// amdUUID returns the UUID of a GPU as ROCm writes it, but in lower case. A GPU without an id has GPU-xx.
func amdUUID(uniqueID string) string {
	id, err := strconv.ParseUint(uniqueID, 10, 64)
	if err != nil || id == 0 {
		return gpuPrefix + "xx"
	}
	return fmt.Sprintf("%s%016x", gpuPrefix, id)
}

// amdGPUs returns the GPUs of AMD that a new worker would see.
func amdGPUs(found *hardware, env func(string) (string, bool), kind Kind) ([]GPU, error) {
	if err := found.usable(kind); err != nil {
		return nil, err
	}
	visible, chosen, err := selectAMD(found.gpus, env)
	if err != nil || chosen && kind == CUDAGPU {
		return visible, err
	}
	return withoutIntegrated(visible, kind), nil
}

// selectAMD returns the GPUs that HIP would show, as ROCm's page "GPU isolation techniques" describes it:
// ROCR_VISIBLE_DEVICES selects and orders GPUs, and HIP_VISIBLE_DEVICES, else CUDA_VISIBLE_DEVICES, selects among the
// result. chosen is true if one of them is set. The rules of the last two are those of torch 2.15
// torch/cuda/__init__.py (_parse_visible_devices).
func selectAMD(gpus []GPU, env func(string) (string, bool)) (visible []GPU, chosen bool, err error) {
	const rocr, hip = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
	first, rocrSet := env(rocr)
	if rocrSet {
		entries, err := parseROCR(rocr, first)
		if err != nil {
			return nil, true, err
		}
		gpus = selectVisible(entries, gpus)
		number(gpus)
	}
	second, set := env(hip)
	if set {
		if _, err := parseROCR(hip, second); err != nil {
			return nil, true, err
		}
		if rocrSet && strings.Count(second, ",") > strings.Count(first, ",") {
			return nil, true, &VariableError{hip, second, fmt.Sprintf(
				"it lists more GPUs than %s=%q, from which it selects: remove one of the two", rocr, first)}
		}
	} else if second, set = env("CUDA_VISIBLE_DEVICES"); !set {
		return gpus, rocrSet, nil
	}
	return selectVisible(parseVisible(lowerUUIDs(second)), gpus), true, nil
}

// parseROCR splits a list of indices and UUIDs, which may be mixed. A negative index and a repeated entry end the list,
// as in ROCm's RvdFilter. Anything else is refused, because ROCm ignores it together with the rest of the list.
func parseROCR(name, value string) ([]string, error) {
	var entries []string
	ended := false
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(value, ",") {
		entry := strings.TrimSpace(part)
		if index, err := strconv.Atoi(entry); err == nil {
			entry = strconv.Itoa(index)
			ended = ended || index < 0
		} else if entry = lowerUUIDs(entry); !strings.HasPrefix(entry, gpuPrefix) {
			return nil, &VariableError{name, value, fmt.Sprintf(
				"%q is neither the number of a GPU nor its UUID (GPU-…): write a list such as 0,1", strings.TrimSpace(part))}
		}
		ended = ended || slices.Contains(entries, entry)
		if !ended {
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

// lowerUUIDs returns a list with the digits of its UUIDs in lower case, as amdUUID writes them.
func lowerUUIDs(list string) string {
	return strings.ReplaceAll(strings.ToLower(list), strings.ToLower(gpuPrefix), gpuPrefix)
}

// number sets the ID of each GPU to its index.
func number(gpus []GPU) {
	for i := range gpus {
		gpus[i].ID = strconv.Itoa(i)
	}
}

// atoi returns a number, or 0 for any other text.
func atoi(text string) int {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}
