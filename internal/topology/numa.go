package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// NUMAMode selects the CPUs near its GPU to which a worker is bound. The names are those of torchrun (torch 2.14
// torch/numa/binding.py).
type NUMAMode string

const (
	// NUMANode binds to all CPUs of the GPU's NUMA node.
	NUMANode NUMAMode = "node"
	// NUMASocket binds to all CPUs of all nodes on the GPU's socket.
	NUMASocket NUMAMode = "socket"
	// NUMAExclusive divides the physical cores of a node among its GPUs, so that no two GPUs share a core.
	NUMAExclusive NUMAMode = "exclusive"
	// NUMACoreComplex binds to the CPUs that share one last-level cache. Each GPU of the node gets its own cache
	// while there are enough.
	NUMACoreComplex NUMAMode = "core-complex"
)

// Binder computes the CPUs of workers. It only reads files.
type Binder struct {
	// Sys is the root of sysfs, os.DirFS("/sys").
	Sys fs.FS
	// GPUs are the GPUs of the workers by local rank, as GPUs returns them with NeedPCI.
	GPUs []GPU
	// Affinity are the CPUs that this process may use, as [Affinity] returns them. Workers get no other CPUs.
	Affinity []int
}

// Binding returns the CPUs for the worker of this local rank, ascending and never empty. The worker's GPU is the one
// at index localRank. Memory is not bound, because the kernel's first-touch rule places it near the CPUs. The rules
// are those of torchrun (torch 2.14 torch/numa/binding.py):
//
//   - A GPU without a known node (-1) belongs to node 0.
//   - exclusive: the GPUs of a node, by index, get the same number of adjacent cores with all their hardware threads.
//     The first GPUs get one more core each while cores are left.
//   - core-complex: caches are sorted by the number of usable CPUs, largest first, then by the lowest CPU. The GPUs of
//     the node, by index, take one cache each and start again at the first.
func (b Binder) Binding(mode NUMAMode, localRank int) ([]int, error) {
	cpus, err := b.binding(mode, localRank)
	if err == nil && len(cpus) == 0 {
		err = fmt.Errorf("no CPU near its GPU is among those this process may use (%s)", FormatCPUList(b.Affinity))
	}
	if err != nil {
		return nil, fmt.Errorf("bind local rank %d to CPUs (NUMA binding %s): %w", localRank, mode, err)
	}
	return cpus, nil
}

func (b Binder) binding(mode NUMAMode, localRank int) ([]int, error) {
	if localRank < 0 || localRank >= len(b.GPUs) {
		return nil, fmt.Errorf("every worker needs a GPU of its own, and %d are visible", len(b.GPUs))
	}
	node, err := b.gpuNode(localRank)
	if err != nil {
		return nil, err
	}
	switch mode {
	case NUMANode:
		return b.nodeCPUs(node)
	case NUMASocket:
		return b.socketCPUs(node)
	case NUMAExclusive:
		return b.exclusiveCPUs(node, localRank)
	case NUMACoreComplex:
		return b.complexCPUs(node, localRank)
	}
	return nil, fmt.Errorf("unknown mode %q", string(mode))
}

// gpuNode returns the NUMA node of the GPU at this index.
func (b Binder) gpuNode(index int) (int, error) {
	gpu := b.GPUs[index]
	if gpu.PCI == "" {
		return 0, fmt.Errorf(
			"the PCI address of GPU %s is not known: name GPUs by index or GPU UUID in CUDA_VISIBLE_DEVICES and have "+
				"nvidia-smi on PATH",
			gpu.ID,
		)
	}
	node, err := b.readInt(path.Join("bus/pci/devices", gpu.PCI, "numa_node"))
	if err != nil {
		return 0, fmt.Errorf("find the NUMA node of GPU %s: %w", gpu.ID, err)
	}
	return max(node, 0), nil
}

// nodeCPUs returns the CPUs of a node that this process may use.
func (b Binder) nodeCPUs(node int) ([]int, error) {
	cpus, err := b.readList(path.Join(nodeDir, "node"+strconv.Itoa(node), "cpulist"))
	if err != nil {
		return nil, fmt.Errorf("list the CPUs of NUMA node %d: %w", node, err)
	}
	return slices.DeleteFunc(cpus, func(cpu int) bool { return !slices.Contains(b.Affinity, cpu) }), nil
}

// socketCPUs returns the usable CPUs of all nodes on the same socket as this node.
func (b Binder) socketCPUs(node int) ([]int, error) {
	own, err := b.nodeSocket(node)
	if err != nil {
		return nil, err
	}
	nodes, err := b.nodes()
	if err != nil {
		return nil, err
	}
	var cpus []int
	for _, n := range nodes {
		socket, err := b.nodeSocket(n)
		if errors.Is(err, errNoCPUs) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if socket != own {
			continue
		}
		more, err := b.nodeCPUs(n)
		if err != nil {
			return nil, err
		}
		cpus = append(cpus, more...)
	}
	slices.Sort(cpus)
	return cpus, nil
}

// errNoCPUs is the error of a node that has only memory.
var errNoCPUs = errors.New("the node has no CPUs")

// nodeSocket returns the package id of a node's CPUs.
func (b Binder) nodeSocket(node int) (int, error) {
	cpus, err := b.readList(path.Join(nodeDir, "node"+strconv.Itoa(node), "cpulist"))
	if err == nil && len(cpus) == 0 {
		err = errNoCPUs
	}
	if err != nil {
		return 0, fmt.Errorf("find the socket of NUMA node %d: %w", node, err)
	}
	return b.readInt(path.Join(cpuDir(cpus[0]), "topology/physical_package_id"))
}

// exclusiveCPUs returns this GPU's share of the physical cores of its node.
func (b Binder) exclusiveCPUs(node, index int) ([]int, error) {
	cpus, position, count, err := b.share(node, index)
	if err != nil {
		return nil, err
	}
	// The lowest thread identifies a core, even if this process may not use that thread.
	cores, err := group(cpus, func(cpu int) (int, error) {
		threads, err := b.readList(path.Join(cpuDir(cpu), "topology/thread_siblings_list"))
		if err != nil || len(threads) == 0 {
			return cpu, err
		}
		return threads[0], nil
	})
	if err != nil {
		return nil, err
	}
	each, extra := len(cores)/count, len(cores)%count
	if each == 0 {
		return nil, fmt.Errorf(
			"NUMA node %d has %d physical cores that this process may use and %d GPUs: take node or core-complex, or give "+
				"the job more CPUs",
			node,
			len(cores),
			count,
		)
	}
	first := position*each + min(position, extra)
	last := first + each
	if position < extra {
		last++
	}
	return flatten(cores[first:last]), nil
}

// complexCPUs returns the CPUs of this GPU's last-level cache.
func (b Binder) complexCPUs(node, index int) ([]int, error) {
	cpus, position, _, err := b.share(node, index)
	if err != nil || len(cpus) == 0 {
		return nil, err
	}
	complexes, err := group(cpus, b.lastCache)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(complexes, func(x, y []int) int {
		return cmp.Or(cmp.Compare(len(y), len(x)), cmp.Compare(x[0], y[0]))
	})
	return complexes[position%len(complexes)], nil
}

// share returns the usable CPUs of a node, the number of GPUs that share them, and the position of the GPU at index
// among these GPUs.
func (b Binder) share(node, index int) (cpus []int, position, count int, err error) {
	if cpus, err = b.nodeCPUs(node); err != nil {
		return nil, 0, 0, err
	}
	for i := range b.GPUs {
		other, err := b.gpuNode(i)
		if err != nil {
			return nil, 0, 0, err
		}
		if other != node {
			continue
		}
		if i < index {
			position++
		}
		count++
	}
	return cpus, position, count, nil
}

// lastCache returns the lowest CPU that shares this CPU's highest-level data cache.
func (b Binder) lastCache(cpu int) (int, error) {
	dir := path.Join(cpuDir(cpu), "cache")
	entries, err := fs.ReadDir(b.Sys, dir)
	if err != nil {
		return 0, fmt.Errorf("find the caches of CPU %d: %w", cpu, err)
	}
	highest, lowestCPU := 0, 0
	for _, entry := range entries {
		cache := path.Join(dir, entry.Name())
		kind := strings.TrimSpace(readString(b.Sys, path.Join(cache, "type")))
		if kind != "Data" && kind != "Unified" {
			continue
		}
		level, err := b.readInt(path.Join(cache, "level"))
		if err != nil {
			return 0, err
		}
		if level <= highest {
			continue
		}
		shared, err := b.readList(path.Join(cache, "shared_cpu_list"))
		if err != nil {
			return 0, err
		}
		if len(shared) > 0 {
			highest, lowestCPU = level, shared[0]
		}
	}
	if highest == 0 {
		return 0, fmt.Errorf("CPU %d has no data cache in %s", cpu, dir)
	}
	return lowestCPU, nil
}

const nodeDir = "devices/system/node"

func cpuDir(cpu int) string {
	return "devices/system/cpu/cpu" + strconv.Itoa(cpu)
}

// nodes lists the machine's NUMA nodes, ascending.
func (b Binder) nodes() ([]int, error) {
	entries, err := fs.ReadDir(b.Sys, nodeDir)
	if err != nil {
		return nil, fmt.Errorf("list NUMA nodes: %w", err)
	}
	var nodes []int
	for _, entry := range entries {
		if number, ok := strings.CutPrefix(entry.Name(), "node"); ok {
			if node, err := strconv.Atoi(number); err == nil {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

func (b Binder) readInt(name string) (int, error) {
	data, err := fs.ReadFile(b.Sys, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return n, nil
}

func (b Binder) readList(name string) ([]int, error) {
	data, err := fs.ReadFile(b.Sys, name)
	if err != nil {
		return nil, err
	}
	cpus, err := ParseCPUList(string(data))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return cpus, nil
}

// group divides ascending cpus into classes with the same key, in ascending order of the key.
func group(cpus []int, key func(int) (int, error)) ([][]int, error) {
	classes := map[int][]int{}
	var keys []int
	for _, cpu := range cpus {
		k, err := key(cpu)
		if err != nil {
			return nil, err
		}
		if _, ok := classes[k]; !ok {
			keys = append(keys, k)
		}
		classes[k] = append(classes[k], cpu)
	}
	slices.Sort(keys)
	sorted := make([][]int, len(keys))
	for i, k := range keys {
		sorted[i] = classes[k]
	}
	return sorted, nil
}

func flatten(classes [][]int) []int {
	return slices.Sorted(slices.Values(slices.Concat(classes...)))
}
