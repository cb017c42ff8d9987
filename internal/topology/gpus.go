package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// GPU is one device that a worker can use.
type GPU struct {
	// Vendor is the maker; the zero value is NVIDIA.
	Vendor Vendor
	// ID is the device's name for CUDA_VISIBLE_DEVICES: as written there, else its index. For AMD it is the name for
	// HIP_VISIBLE_DEVICES, for Intel the one for ZE_AFFINITY_MASK.
	ID string
	// PCI is the bus address as in /sys/bus/pci/devices, "0000:65:00.0"; "" if it is unknown. MIG instances, partitions
	// and tiles have the address of their GPU.
	PCI string
	// UUID is the device's UUID, "GPU-…"; "" if it is unknown. A MIG instance has the UUID of its GPU.
	UUID string
	// Integrated says that the device is a part of the CPU. It is set only for GPUs of AMD and Intel.
	Integrated bool
}

// GPUOptions configure the search for GPUs. The zero value counts the GPUs of this machine.
type GPUOptions struct {
	// Kind selects the GPUs by who would use them; the zero value is AnyGPU.
	Kind Kind
	// Root is the file system's root; nil means os.DirFS("/").
	Root fs.FS
	// Env reads the environment, PATH included; nil means os.LookupEnv.
	Env func(string) (string, bool)
	// NeedPCI asks for the PCI addresses, even if only nvidia-smi knows them and CUDA_VISIBLE_DEVICES is enough to
	// count the GPUs.
	NeedPCI bool
	// Timeout limits nvidia-smi; 0 means 10 s. nvidia-smi takes seconds on a machine without persistence mode, and
	// never ends if the driver hangs.
	Timeout time.Duration
	// open returns the error that opening a device node would have; nil means openable or openableHere, as fits Root.
	open func(root fs.FS, name string) error
}

// withDefaults returns the options with the defaults of those that are zero.
func (o GPUOptions) withDefaults() GPUOptions {
	switch {
	case o.open != nil:
	case o.Root != nil:
		o.open = openable
	default:
		o.open = openableHere
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	return o
}

// GPUs returns the GPUs that a new worker would see, in the order of the vendor's runtime, so that a worker's GPU is
// the one at its local rank. No GPU is an empty list and no error. All are of one vendor, because a build of torch
// supports one: of NVIDIA, if its driver lists a GPU that this process may use, else of AMD, else of Intel, as far as
// the kind allows. AnyGPU leaves out integrated GPUs. The other kinds leave out those after the last discrete GPU,
// unless a variable selects among AMD's.
//
// For NVIDIA it uses these sources, cheap ones first:
//
//  1. CUDA_VISIBLE_DEVICES, if set, selects and orders the devices. As in CUDA, entries after the first invalid one are
//     ignored. "", "-1" and "NoDevFiles" mean no devices, and then no other source is read. Sources 2 and 3 show which
//     entries are invalid; without them all entries are accepted.
//  2. /proc/driver/nvidia/gpus, without the devices for which this container has no /dev/nvidia* node.
//  3. nvidia-smi from PATH, if source 2 does not exist (WSL) or all its device nodes are missing, and if source 1 is
//     not enough. GPUs fails if nvidia-smi fails or exceeds the timeout.
//
// Indices follow the PCI bus, as in nvidia-smi, and as in CUDA with equal GPUs or CUDA_DEVICE_ORDER=PCI_BUS_ID. MIG
// instances count only if CUDA_VISIBLE_DEVICES lists them; then each counts as one GPU.
//
// For AMD the source is the KFD topology in sysfs, in which each partition of a GPU is a GPU of its own, with
// ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES. For Intel it is the DRM devices in sysfs, with
// ZE_FLAT_DEVICE_HIERARCHY, ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR. GPUs fails with a [*VariableError] if it does
// not understand one of these variables, and with an error that wraps [fs.ErrPermission] if there are GPUs and this
// user may open none of them.
//
// On a timeout, and when ctx ends, GPUs kills nvidia-smi with all processes that it has started. If SIGKILL does not
// end nvidia-smi, because its driver hangs in the kernel, GPUs returns its error anyway and leaves a goroutine that
// waits.
func GPUs(ctx context.Context, opts GPUOptions) ([]GPU, error) {
	return findGPUs(opts, func(program string) ([]GPU, error) {
		return askSMI(ctx, program, opts.withDefaults().Timeout)
	})
}

// ErrOnlySMI is the error of [KnownGPUs] if only nvidia-smi can find the GPUs.
var ErrOnlySMI = errors.New("only nvidia-smi knows the GPUs")

// KnownGPUs returns what [GPUs] would return, but runs nothing.
func KnownGPUs(opts GPUOptions) ([]GPU, error) {
	return findGPUs(opts, func(string) ([]GPU, error) { return nil, ErrOnlySMI })
}

// findGPUs implements GPUs. ask runs the nvidia-smi at a path.
func findGPUs(opts GPUOptions, ask func(program string) ([]GPU, error)) ([]GPU, error) {
	opts = opts.withDefaults()
	root, env, open := opts.Root, opts.Env, opts.open
	if opts.Kind == XPU {
		found, tiles := intelHardware(root, open)
		return intelGPUs(found, tiles, env, opts.Kind)
	}
	installed, known := procGPUs(root)
	if len(installed) == 0 {
		if found := amdHardware(root, open); found.present(opts.Kind) {
			return amdGPUs(found, env, opts.Kind)
		}
		if found, tiles := intelHardware(root, open); opts.Kind == AnyGPU && found.present(opts.Kind) {
			return intelGPUs(found, tiles, env, opts.Kind)
		}
	}
	list, chosen := env("CUDA_VISIBLE_DEVICES")
	entries := parseVisible(list)
	if chosen && len(entries) == 0 {
		return nil, nil
	}
	if !known && (!chosen || opts.NeedPCI) {
		if program := FindSMI(env); program != "" {
			var err error
			if installed, err = ask(program); err != nil {
				return nil, err
			}
			known = true
		}
	}
	switch {
	case !chosen:
		return installed, nil
	case known:
		return selectVisible(entries, installed), nil
	}
	return assumeVisible(entries), nil
}

// procGPUs reads the driver's list of devices, in the order of the PCI bus. It returns false if the list does not
// show which GPUs can be used.
func procGPUs(root fs.FS) ([]GPU, bool) {
	const dir = "proc/driver/nvidia/gpus"
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, false
	}
	var gpus []GPU
	missing := 0
	for _, entry := range entries {
		pci, err := normalizePCI(entry.Name())
		if err != nil {
			continue
		}
		info := parseInformation(readString(root, path.Join(dir, entry.Name(), "information")))
		if info.excluded {
			continue
		}
		// A container sees the list of the whole machine, but only its own device nodes.
		if info.minor != "" && !exists(root, "dev/nvidia"+info.minor) {
			missing++
			continue
		}
		gpus = append(gpus, GPU{PCI: pci, UUID: info.uuid})
	}
	if len(gpus) == 0 && missing > 0 {
		// All nodes are missing: either this is a container without GPUs, or no process has used the GPUs since the
		// machine was started. In the second case nvidia-smi creates the nodes.
		return nil, false
	}
	slices.SortFunc(gpus, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(len(a.PCI), len(b.PCI)), cmp.Compare(a.PCI, b.PCI))
	})
	for i := range gpus {
		gpus[i].ID = strconv.Itoa(i)
	}
	return gpus, true
}

func exists(root fs.FS, name string) bool {
	_, err := fs.Stat(root, name)
	return !errors.Is(err, fs.ErrNotExist)
}

// information is the content of /proc/driver/nvidia/gpus/*/information.
type information struct {
	uuid     string // "" while the driver prints question marks, before it has initialized the device
	minor    string // the number of its device node
	excluded bool   // by the driver's own list
}

func parseInformation(text string) information {
	var info information
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "GPU UUID":
			if !strings.Contains(value, "?") {
				info.uuid = value
			}
		case "Device Minor":
			if _, err := strconv.ParseUint(value, 10, 31); err == nil {
				info.minor = value
			}
		case "GPU Excluded":
			info.excluded = value == "Yes"
		}
	}
	return info
}

// normalizePCI returns a PCI address in the form of sysfs. nvidia-smi prints the domain with eight digits and in
// capitals, "00000000:65:00.0".
func normalizePCI(addr string) (string, error) {
	domain, rest, ok := strings.Cut(strings.ToLower(strings.TrimSpace(addr)), ":")
	bus, slot, ok1 := strings.Cut(rest, ":")
	device, function, ok2 := strings.Cut(slot, ".")
	var numbers [4]uint64
	var failed error
	for i, text := range []string{domain, bus, device, function} {
		n, err := strconv.ParseUint(text, 16, 32)
		numbers[i], failed = n, cmp.Or(failed, err)
	}
	if !ok || !ok1 || !ok2 || failed != nil {
		return "", fmt.Errorf("%q is not a PCI address", addr)
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", numbers[0], numbers[1], numbers[2], numbers[3]), nil
}
