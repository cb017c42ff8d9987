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

// GPU is one NVIDIA device that a worker can use.
type GPU struct {
	// ID is what names the device in CUDA_VISIBLE_DEVICES: as written there, else its index.
	ID string
	// PCI is the bus address as in /sys/bus/pci/devices, "0000:65:00.0"; "" if it is not known.
	PCI string
	// UUID is the device's own name, "GPU-…"; "" if it is not known. A MIG instance shows its GPU's.
	UUID string
}

// GPUOptions say how GPUs are looked for. The zero value is right for counting them on this machine.
type GPUOptions struct {
	// Root is the file system's root; nil means os.DirFS("/").
	Root fs.FS
	// Env reads the environment, PATH included; nil means os.LookupEnv.
	Env func(string) (string, bool)
	// NeedPCI asks for the PCI addresses even where only nvidia-smi knows them and CUDA_VISIBLE_DEVICES
	// would have been enough to count.
	NeedPCI bool
	// Timeout bounds nvidia-smi; 0 means 10 s. It takes seconds on a machine without persistence mode
	// and for ever on one whose driver hangs.
	Timeout time.Duration
}

// GPUs returns the GPUs that a worker started now would see, in CUDA's order, so that the GPU of a
// worker is the one at its local rank. None is an empty list and no error. Sources, the cheap first:
//
//  1. CUDA_VISIBLE_DEVICES, if set, picks and orders the devices, read as CUDA reads it: entries after
//     the first invalid one do not count. "", "-1" and "NoDevFiles" are no devices, and nothing else is
//     read. What 2 and 3 find tells which entries are invalid; without them the entries are believed.
//  2. /proc/driver/nvidia/gpus, less the devices for which this container has no /dev/nvidia* node.
//  3. nvidia-smi from PATH, if 2 does not exist (WSL) or all its device nodes are missing. Not asked if
//     the list of 1 is enough. An error is returned if it fails or does not answer in time.
//
// Indices follow the PCI bus, as in nvidia-smi and in CUDA with equal GPUs or CUDA_DEVICE_ORDER=PCI_BUS_ID.
// MIG instances count only when CUDA_VISIBLE_DEVICES lists them, each as one GPU.
//
// nvidia-smi is killed, with all it has started, when the time is over or ctx ends. If even SIGKILL does
// not end it (a driver stuck in the kernel), GPUs returns its error all the same and leaves behind the
// goroutine that waits for it.
func GPUs(ctx context.Context, opts GPUOptions) ([]GPU, error) {
	return findGPUs(opts, func(program string) ([]GPU, error) {
		return askSMI(ctx, program, cmp.Or(opts.Timeout, 10*time.Second))
	})
}

// CountGPUs returns how many GPUs would be found by GPUs, but runs nothing. It is false where only nvidia-smi knows, or may know,
// that there are any.
func CountGPUs(opts GPUOptions) (count int, known bool) {
	gpus, err := findGPUs(opts, func(string) ([]GPU, error) { return nil, errors.New("nvidia-smi is not asked") })
	return len(gpus), err == nil
}

// findGPUs asks nvidia-smi by ask, which gets its path.
func findGPUs(opts GPUOptions, ask func(program string) ([]GPU, error)) ([]GPU, error) {
	root, env := opts.Root, opts.Env
	if root == nil {
		root = os.DirFS("/")
	}
	if env == nil {
		env = os.LookupEnv
	}
	list, chosen := env("CUDA_VISIBLE_DEVICES")
	entries := parseVisible(list)
	if chosen && len(entries) == 0 {
		return nil, nil
	}
	installed, known := procGPUs(root)
	if !known && (!chosen || opts.NeedPCI) {
		program, err := lookPath(env, "nvidia-smi")
		if err == nil {
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
	return believeVisible(entries), nil
}

// procGPUs reads the driver's list of devices, in the order of the PCI bus. It is false if the list does
// not say which GPUs can be used here.
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
		// Containers see the list of the whole machine, but only their own device nodes.
		if info.minor != "" && !exists(root, "dev/nvidia"+info.minor) {
			missing++
			continue
		}
		gpus = append(gpus, GPU{PCI: pci, UUID: info.uuid})
	}
	if len(gpus) == 0 && missing > 0 {
		// No node at all: either a container without GPUs, or a machine on which no one has used them
		// since it was started. nvidia-smi makes the nodes in the second case.
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

// information is what /proc/driver/nvidia/gpus/*/information says about one device.
type information struct {
	uuid     string // "" until the driver has talked to the device: it prints question marks
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

// normalizePCI returns a PCI address as sysfs writes it: nvidia-smi prints the domain with eight digits
// and everything in capitals, "00000000:65:00.0".
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
