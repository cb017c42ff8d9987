package topology

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// numaMachine returns the sysfs of a machine. Core c has the hardware threads c and, with SMT, c + all
// cores; consecutive cores share nodes, and consecutive nodes share sockets.
type numaMachine struct {
	sockets, nodesPerSocket, coresPerNode int
	smt                                   bool
	coresPerCache                         int   // last-level cache; 0 means no cache directory
	gpuNodes                              []int // numa_node of each GPU
}

func (m numaMachine) threads(core int) []int {
	cores := m.sockets * m.nodesPerSocket * m.coresPerNode
	if !m.smt {
		return []int{core}
	}
	return []int{core, core + cores}
}

// cpus returns the hardware threads of a run of cores.
func (m numaMachine) cpus(firstCore, count int) []int {
	var cpus []int
	for core := range count {
		cpus = append(cpus, m.threads(firstCore+core)...)
	}
	slices.Sort(cpus)
	return cpus
}

func (m numaMachine) all() []int {
	return m.cpus(0, m.sockets*m.nodesPerSocket*m.coresPerNode)
}

func (m numaMachine) gpus() []GPU {
	gpus := make([]GPU, len(m.gpuNodes))
	for i := range gpus {
		gpus[i] = GPU{ID: strconv.Itoa(i), PCI: fmt.Sprintf("0000:%02x:00.0", 0x10+i)}
	}
	return gpus
}

func (m numaMachine) sys() fstest.MapFS {
	content := map[string]string{"devices/system/node/online": "0\n", "devices/system/node/has_cpu": "0\n"}
	for node := range m.sockets * m.nodesPerSocket {
		first := node * m.coresPerNode
		content[fmt.Sprintf("devices/system/node/node%d/cpulist", node)] = FormatCPUList(m.cpus(first, m.coresPerNode)) + "\n"
		for core := first; core < first+m.coresPerNode; core++ {
			for _, cpu := range m.threads(core) {
				m.addCPU(content, cpu, core, node)
			}
		}
	}
	for i, gpu := range m.gpus() {
		content["bus/pci/devices/"+gpu.PCI+"/numa_node"] = strconv.Itoa(m.gpuNodes[i]) + "\n"
	}
	return files(content)
}

func (m numaMachine) addCPU(content map[string]string, cpu, core, node int) {
	dir := cpuDir(cpu)
	siblings := FormatCPUList(m.threads(core)) + "\n"
	content[dir+"/topology/physical_package_id"] = strconv.Itoa(node/m.nodesPerSocket) + "\n"
	content[dir+"/topology/thread_siblings_list"] = siblings
	if m.coresPerCache == 0 {
		return
	}
	first := core / m.coresPerCache * m.coresPerCache
	for i, cache := range []struct{ level, kind, cpus string }{
		{"1", "Data", siblings},
		{"1", "Instruction", siblings},
		{"3", "Unified", FormatCPUList(m.cpus(first, m.coresPerCache)) + "\n"},
		{"2", "Unified", siblings},
		{"4", "Instruction", "0-9999\n"}, // no data: does not count
	} {
		index := fmt.Sprintf("%s/cache/index%d/", dir, i)
		content[index+"level"], content[index+"type"], content[index+"shared_cpu_list"] = cache.level+"\n", cache.kind+"\n", cache.cpus
	}
	content[dir+"/cache/uevent"] = ""
}

func TestBinding(t *testing.T) {
	// 16 cores, 32 threads: node n has cores 4n to 4n+3; each L3 is shared by two cores.
	big := numaMachine{
		sockets: 2, nodesPerSocket: 2, coresPerNode: 4, smt: true, coresPerCache: 2,
		gpuNodes: []int{0, 0, 1, 1, 2, 2, 3, 3},
	}
	change := func(edit func(*numaMachine)) numaMachine {
		m := big
		edit(&m)
		return m
	}
	crowded := change(func(m *numaMachine) { m.gpuNodes = []int{1, 0, 0, 0, 1, 0, 0} })
	tests := []struct {
		name     string
		machine  numaMachine
		affinity string // "" means all
		mode     NUMAMode
		want     []string // by local rank
	}{
		{
			"node",
			big,
			"",
			NUMANode,
			[]string{
				"0-3,16-19",
				"0-3,16-19",
				"4-7,20-23",
				"4-7,20-23",
				"8-11,24-27",
				"8-11,24-27",
				"12-15,28-31",
				"12-15,28-31",
			},
		},
		{"node within the affinity", big, "2-9", NUMANode, []string{"2-3", "2-3", "4-7", "4-7", "8-9", "8-9"}},
		{
			"GPU without a node",
			change(func(m *numaMachine) { m.gpuNodes = []int{-1, 3} }),
			"",
			NUMANode,
			[]string{"0-3,16-19", "12-15,28-31"},
		},
		{
			"socket",
			big,
			"",
			NUMASocket,
			[]string{"0-7,16-23", "0-7,16-23", "0-7,16-23", "0-7,16-23", "8-15,24-31", "8-15,24-31", "8-15,24-31", "8-15,24-31"},
		},
		{
			"socket within the affinity",
			big,
			"0,6,9,31",
			NUMASocket,
			[]string{"0,6", "0,6", "0,6", "0,6", "9,31", "9,31", "9,31", "9,31"},
		},
		{
			"exclusive",
			big,
			"",
			NUMAExclusive,
			[]string{
				"0-1,16-17",
				"2-3,18-19",
				"4-5,20-21",
				"6-7,22-23",
				"8-9,24-25",
				"10-11,26-27",
				"12-13,28-29",
				"14-15,30-31",
			},
		},
		{
			"exclusive without SMT", change(func(m *numaMachine) { m.smt = false }), "", NUMAExclusive,
			[]string{"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"},
		},
		{
			"exclusive gives what is left over to the lowest GPUs", change(func(m *numaMachine) { m.gpuNodes = []int{1, 0, 0, 1, 0} }), "", NUMAExclusive,
			[]string{"4-5,20-21", "0-1,16-17", "2,18", "6-7,22-23", "3,19"},
		},
		{"exclusive counts a core with one usable thread", big, "1-3,16", NUMAExclusive, []string{"1,16", "2-3"}},
		{
			"exclusive counts GPUs without a node in node 0",
			change(func(m *numaMachine) { m.gpuNodes = []int{-1, 0} }),
			"",
			NUMAExclusive,
			[]string{"0-1,16-17", "2-3,18-19"},
		},
		{
			"core-complex",
			big,
			"",
			NUMACoreComplex,
			[]string{
				"0-1,16-17",
				"2-3,18-19",
				"4-5,20-21",
				"6-7,22-23",
				"8-9,24-25",
				"10-11,26-27",
				"12-13,28-29",
				"14-15,30-31",
			},
		},
		{
			"core-complex starts again",
			crowded,
			"",
			NUMACoreComplex,
			[]string{"4-5,20-21", "0-1,16-17", "2-3,18-19", "0-1,16-17", "6-7,22-23", "2-3,18-19", "0-1,16-17"},
		},
		{"core-complex takes the larger first", big, "0-3,18-19", NUMACoreComplex, []string{"2-3,18-19", "0-1"}},
		{
			"core-complex of one cache", change(func(m *numaMachine) { m.coresPerCache = 4 }), "", NUMACoreComplex,
			[]string{"0-3,16-19", "0-3,16-19", "4-7,20-23", "4-7,20-23"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			binder := Binder{Sys: tt.machine.sys(), GPUs: tt.machine.gpus(), Affinity: tt.machine.all()}
			if tt.affinity != "" {
				binder.Affinity, _ = ParseCPUList(tt.affinity)
			}
			var got []string
			for rank := range tt.want {
				cpus, err := binder.Binding(tt.mode, rank)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, FormatCPUList(cpus))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("bindings by local rank (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBindingErrors(t *testing.T) {
	machine := numaMachine{
		sockets:        1,
		nodesPerSocket: 2,
		coresPerNode:   2,
		smt:            true,
		coresPerCache:  2,
		gpuNodes:       []int{0, 0, 0, 1},
	}
	binder := Binder{Sys: machine.sys(), GPUs: machine.gpus(), Affinity: machine.all()}
	edited := func(edit func(*Binder)) Binder {
		b := binder
		b.GPUs = slices.Clone(b.GPUs)
		edit(&b)
		return b
	}
	tests := []struct {
		name   string
		binder Binder
		mode   NUMAMode
		rank   int
		want   string
	}{
		{
			"more workers than GPUs",
			binder,
			NUMANode,
			4,
			"bind local rank 4 to CPUs (NUMA binding node): every worker needs a GPU of its own, and 4 are visible",
		},
		{
			"no GPUs",
			Binder{},
			NUMANode,
			0,
			"bind local rank 0 to CPUs (NUMA binding node): every worker needs a GPU of its own, and 0 are visible",
		},
		{
			"fewer cores than GPUs", binder, NUMAExclusive, 0,
			"bind local rank 0 to CPUs (NUMA binding exclusive): NUMA node 0 has 2 physical cores that this process may use and 3 GPUs: take node or core-complex, or give the job more CPUs",
		},
		{
			"no CPU of the node", edited(func(b *Binder) { b.Affinity = []int{0, 1} }), NUMANode, 3,
			"bind local rank 3 to CPUs (NUMA binding node): no CPU near its GPU is among those this process may use (0-1)",
		},
		{
			"no CPU of the node for core-complex", edited(func(b *Binder) { b.Affinity = []int{0, 1} }), NUMACoreComplex, 3,
			"bind local rank 3 to CPUs (NUMA binding core-complex): no CPU near its GPU is among those this process may use (0-1)",
		},
		{
			"address not known", edited(func(b *Binder) { b.GPUs[0] = GPU{ID: "MIG-a"} }), NUMANode, 0,
			"bind local rank 0 to CPUs (NUMA binding node): the PCI address of GPU MIG-a is not known: name GPUs by index or GPU UUID in CUDA_VISIBLE_DEVICES and have nvidia-smi on PATH",
		},
		{
			"device not in sysfs", edited(func(b *Binder) { b.GPUs[0].PCI = "0000:99:00.0" }), NUMANode, 0,
			"bind local rank 0 to CPUs (NUMA binding node): find the NUMA node of GPU 0: open bus/pci/devices/0000:99:00.0/numa_node: file does not exist",
		},
		{
			"kernel without NUMA", edited(func(b *Binder) {
				b.Sys = files(map[string]string{"bus/pci/devices/0000:10:00.0/numa_node": "-1\n"})
			}), NUMANode, 0,
			"bind local rank 0 to CPUs (NUMA binding node): list the CPUs of NUMA node 0: open devices/system/node/node0/cpulist: file does not exist",
		},
		{
			"no caches", edited(func(b *Binder) {
				bare := machine
				bare.coresPerCache = 0
				b.Sys = bare.sys()
			}), NUMACoreComplex, 0,
			"bind local rank 0 to CPUs (NUMA binding core-complex): find the caches of CPU 0: open devices/system/cpu/cpu0/cache: file does not exist",
		},
		{"unknown mode", binder, "best", 0, `bind local rank 0 to CPUs (NUMA binding best): unknown mode "best"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cpus, err := tt.binder.Binding(tt.mode, tt.rank)
			if cpus != nil || errorText(err) != tt.want {
				t.Errorf("Binding = %v, %v\nwant error %s", cpus, err, tt.want)
			}
		})
	}
}

// TestSocketBesideMemoryNode checks that a node without CPUs, as with CXL or on Grace Hopper, belongs to no socket.
func TestSocketBesideMemoryNode(t *testing.T) {
	machine := numaMachine{sockets: 2, nodesPerSocket: 1, coresPerNode: 2, gpuNodes: []int{1, 2}}
	sys := machine.sys()
	sys["devices/system/node/node2/cpulist"] = &fstest.MapFile{Data: []byte("\n")}
	binder := Binder{Sys: sys, GPUs: machine.gpus(), Affinity: machine.all()}
	cpus, err := binder.Binding(NUMASocket, 0)
	if err != nil || FormatCPUList(cpus) != "2-3" {
		t.Errorf("Binding = %v, %v", cpus, err)
	}
	_, err = binder.Binding(NUMASocket, 1)
	if want := "bind local rank 1 to CPUs (NUMA binding socket): find the socket of NUMA node 2: the node has no CPUs"; errorText(
		err,
	) != want {
		t.Errorf("error %q, want %q", errorText(err), want)
	}
}

// TestExclusiveIsAFairPartition checks on random machines that the exclusive sets of a node have no CPU in common,
// use all CPUs, consist of whole cores, and differ by at most one core, the larger sets first.
func TestExclusiveIsAFairPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machine := numaMachine{
			sockets: rapid.IntRange(1, 2).Draw(t, "sockets"), nodesPerSocket: rapid.IntRange(1, 2).Draw(t, "nodes"),
			coresPerNode: rapid.IntRange(8, 20).Draw(t, "cores"), smt: rapid.Bool().Draw(t, "smt"),
		}
		nodes := machine.sockets * machine.nodesPerSocket
		machine.gpuNodes = rapid.SliceOfN(rapid.IntRange(-1, nodes-1), 1, 8).Draw(t, "gpus")
		binder := Binder{Sys: machine.sys(), GPUs: machine.gpus(), Affinity: machine.all()}
		owned := map[int][]int{}
		counts := map[int][]int{}
		for rank, node := range machine.gpuNodes {
			node = max(node, 0)
			cpus, err := binder.Binding(NUMAExclusive, rank)
			if err != nil {
				t.Fatal(err)
			}
			cores := len(cpus) / len(machine.threads(0))
			for _, cpu := range cpus {
				core := cpu % (nodes * machine.coresPerNode)
				for _, thread := range machine.threads(core) {
					if !slices.Contains(cpus, thread) {
						t.Fatalf("rank %d has CPU %d but not %d of the same core", rank, cpu, thread)
					}
				}
			}
			counts[node] = append(counts[node], cores)
			owned[node] = append(owned[node], cpus...)
		}
		for node, cpus := range owned {
			most, least := counts[node][0], counts[node][len(counts[node])-1]
			if !slices.IsSortedFunc(counts[node], func(a, b int) int { return b - a }) || most-least > 1 {
				t.Fatalf("node %d: cores by rank %v", node, counts[node])
			}
			slices.Sort(cpus)
			if want := machine.cpus(node*machine.coresPerNode, machine.coresPerNode); !slices.Equal(cpus, want) {
				t.Fatalf("node %d: shares add up to %v, want %v", node, cpus, want)
			}
		}
	})
}
