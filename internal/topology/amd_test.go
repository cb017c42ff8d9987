package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// kfdNode describes a node of the KFD topology for a test.
type kfdNode struct {
	cores, simds, gfx, bus, partition, minor int
	unique                                   uint64
}

// kfdMachine returns a machine with these nodes, in the format of Linux 6.12's drivers/gpu/drm/amd/amdkfd/
// kfd_topology.c (node_show), and their device nodes.
func kfdMachine(nodes ...kfdNode) fstest.MapFS {
	machine := files(map[string]string{"dev/kfd": ""})
	for i, n := range nodes {
		id := 0
		if n.simds > 0 {
			id = 1000 + i
			machine[fmt.Sprintf("dev/dri/renderD%d", n.minor)] = &fstest.MapFile{}
		}
		dir := fmt.Sprintf("%s/%d/", kfdNodes, i)
		machine[dir+"gpu_id"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d\n", id)}
		machine[dir+"properties"] = &fstest.MapFile{Data: fmt.Appendf(nil, `cpu_cores_count %d
simd_count %d
mem_banks_count 1
caches_count 206
io_links_count 8
p2p_links_count 0
cpu_core_id_base 0
simd_id_base 2147487744
wave_front_size 64
gfx_target_version %d
vendor_id 4098
device_id 29857
location_id %d
domain 0
drm_render_minor %d
hive_id 13830829847431946393
local_mem_size 0
unique_id %d
num_xcc 8
max_engine_clk_ccompute 3700
`, n.cores, n.simds, n.gfx, uint32(n.partition)<<28|uint32(n.bus)<<8, n.minor, n.unique)}
	}
	return machine
}

var cpuNode = kfdNode{cores: 96}

// instinct returns the node of an MI300X, or of one of its partitions.
func instinct(bus, partition, minor int) kfdNode {
	return kfdNode{
		simds: 1216, gfx: 90402, bus: bus, partition: partition, minor: minor,
		unique: 0xabc0000000000000 + uint64(bus),
	}
}

// eightInstincts returns a machine with two CPUs and eight MI300X.
func eightInstincts() fstest.MapFS {
	nodes := []kfdNode{cpuNode, cpuNode}
	for i := range 8 {
		nodes = append(nodes, instinct(5+16*i, 0, 128+8*i))
	}
	return kfdMachine(nodes...)
}

// partitioned returns a machine with two MI300X in CPX mode, with eight partitions each.
func partitioned() fstest.MapFS {
	nodes := []kfdNode{cpuNode}
	for i := range 16 {
		nodes = append(nodes, instinct(5+16*(i/8), i%8, 128+i))
	}
	return kfdMachine(nodes...)
}

// ids returns the GPUs as "ID@bus" of their PCI address.
func ids(gpus []GPU) string {
	var all []string
	for _, g := range gpus {
		bus := strings.TrimSuffix(strings.TrimPrefix(g.PCI, "0000:"), ".0")
		all = append(all, g.ID+"@"+strings.TrimSuffix(bus, ":00"))
	}
	return strings.Join(all, " ")
}

func TestAMDFacts(t *testing.T) {
	got, err := GPUs(t.Context(), GPUOptions{Root: kfdMachine(cpuNode, instinct(0x65, 3, 131)), Env: environment(nil)})
	want := []GPU{{Vendor: AMD, ID: "0", PCI: "0000:65:00.0", UUID: "GPU-abc0000000000065"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAMD(t *testing.T) {
	const all = "0@05 1@15 2@25 3@35 4@45 5@55 6@65 7@75"
	rocr := func(v string) map[string]string { return map[string]string{"ROCR_VISIBLE_DEVICES": v} }
	hip := func(v string) map[string]string { return map[string]string{"HIP_VISIBLE_DEVICES": v} }
	cuda := func(v string) map[string]string { return map[string]string{"CUDA_VISIBLE_DEVICES": v} }
	both := func(all ...map[string]string) map[string]string {
		env := map[string]string{}
		for _, e := range all {
			maps.Copy(env, e)
		}
		return env
	}
	desktop := kfdMachine(
		cpuNode, kfdNode{simds: 192, gfx: 110000, bus: 3, minor: 128}, kfdNode{simds: 4, gfx: 100306, bus: 0xe, minor: 129},
	)
	crossed := kfdMachine(
		cpuNode, kfdNode{simds: 4, gfx: 100306, bus: 0xe, minor: 128}, kfdNode{simds: 96, gfx: 110000, bus: 0x13, minor: 129},
	)
	apu := kfdMachine(cpuNode, kfdNode{simds: 24, gfx: 110003, bus: 0xc1, minor: 128})
	oldAPU := kfdMachine(kfdNode{cores: 4, simds: 32, gfx: 0, bus: 0, minor: 128})
	tests := []struct {
		name    string
		machine fs.FS
		kind    Kind
		env     map[string]string
		want    string
		err     string
	}{
		{name: "CPUs only", machine: kfdMachine(cpuNode, cpuNode)},
		{name: "eight MI300X", machine: eightInstincts(), want: all},
		{name: "eight MI300X for torch.cuda", machine: eightInstincts(), kind: CUDAGPU, want: all},
		{name: "eight MI300X for torch.xpu", machine: eightInstincts(), kind: XPU},
		{
			name: "partitions", machine: partitioned(),
			want: "0@05 1@05 2@05 3@05 4@05 5@05 6@05 7@05 8@15 9@15 10@15 11@15 12@15 13@15 14@15 15@15",
		},
		{name: "an APU for computing", machine: kfdMachine(cpuNode, kfdNode{simds: 912, gfx: 90402, bus: 1, minor: 128}), want: "0@01"},
		{name: "an integrated GPU alone", machine: apu},
		{name: "an integrated GPU alone for torch.cuda", machine: apu, kind: CUDAGPU, want: "0@c1"},
		{name: "a node that is CPU and GPU", machine: oldAPU},
		{name: "an integrated GPU beside a discrete one", machine: desktop, want: "0@03"},
		{name: "an integrated GPU beside a discrete one for torch.cuda", machine: desktop, kind: CUDAGPU, want: "0@03"},
		{name: "an integrated GPU before a discrete one", machine: crossed, kind: CUDAGPU, want: "0@0e 1@13"},
		{name: "an integrated GPU by its number", machine: desktop, kind: CUDAGPU, env: hip("1"), want: "1@0e"},

		{name: "ROCR", machine: eightInstincts(), env: rocr("5,2"), want: "0@55 1@25"},
		{name: "ROCR by UUID and number", machine: eightInstincts(), env: rocr("GPU-ABC0000000000025, 0"), want: "0@25 1@05"},
		{name: "ROCR by a short UUID of many", machine: eightInstincts(), env: rocr("GPU-abc"), want: ""},
		{name: "ROCR by an unknown UUID", machine: eightInstincts(), env: rocr("1,GPU-fff,2"), want: "0@15"},
		{name: "ROCR beyond the machine", machine: eightInstincts(), env: rocr("1,8,2"), want: "0@15"},
		{name: "ROCR repeated", machine: eightInstincts(), env: rocr("1,2,1,3"), want: "0@15 1@25"},
		{name: "ROCR hides all", machine: eightInstincts(), env: rocr("")},
		{name: "ROCR hides all by -1", machine: eightInstincts(), env: rocr("-1")},
		{name: "HIP", machine: eightInstincts(), env: hip("3,1"), want: "3@35 1@15"},
		{name: "HIP by UUID", machine: eightInstincts(), env: hip("GPU-ABC0000000000035"), want: "GPU-abc0000000000035@35"},
		{name: "HIP hides all", machine: eightInstincts(), env: hip("")},
		{name: "CUDA", machine: eightInstincts(), env: cuda("3,1"), want: "3@35 1@15"},
		{name: "CUDA hides all", machine: eightInstincts(), env: cuda("")},
		{name: "HIP before CUDA", machine: eightInstincts(), env: both(hip("3"), cuda("")), want: "3@35"},
		{name: "HIP selects among ROCR", machine: eightInstincts(), env: both(rocr("7,6,5"), hip("2,0")), want: "2@55 0@75"},
		{name: "CUDA selects among ROCR", machine: eightInstincts(), env: both(rocr("7,6,5"), cuda("1")), want: "1@65"},
		{
			name: "HIP lists more than ROCR", machine: eightInstincts(), env: both(rocr("7"), hip("0,1")),
			err: `HIP_VISIBLE_DEVICES="0,1": it lists more GPUs than ROCR_VISIBLE_DEVICES="7", from which it selects: remove one of the two`,
		},
		{
			name: "ROCR is garbage", machine: eightInstincts(), env: rocr("0;1"),
			err: `ROCR_VISIBLE_DEVICES="0;1": "0;1" is neither the number of a GPU nor its UUID (GPU-…): write a list such as 0,1`,
		},
		{
			name: "HIP is garbage", machine: eightInstincts(), env: hip("all"),
			err: `HIP_VISIBLE_DEVICES="all": "all" is neither the number of a GPU nor its UUID (GPU-…): write a list such as 0,1`,
		},

		{name: "a container without the compute node", machine: without(eightInstincts(), "dev/kfd")},
		{
			name: "a container with two GPUs", machine: without(eightInstincts(), "dev/dri/renderD128", "dev/dri/renderD136",
				"dev/dri/renderD144", "dev/dri/renderD160", "dev/dri/renderD168", "dev/dri/renderD176"),
			want: "0@35 1@75",
		},
		{name: "a GPU that the cgroup excludes", machine: deniedFS{eightInstincts(), kfdNodes + "/2/properties"}, want: "0@15 1@25 2@35 3@45 4@55 5@65 6@75"},
		{name: "properties that are garbage", machine: with(apu, kfdNodes+"/1/properties", "\x00\xff simd_count\n"), kind: CUDAGPU},
		{name: "an id that is garbage", machine: with(apu, kfdNodes+"/1/gpu_id", "x"), kind: CUDAGPU},
		{name: "a strange node", machine: with(apu, kfdNodes+"/x/gpu_id", "7"), kind: CUDAGPU, want: "0@c1"},
		{
			name: "NVIDIA comes first", machine: with(with(eightInstincts(), "proc/driver/nvidia/gpus/0000:17:00.0/information", ""), "dev/nvidia0", ""),
			want: "0@17",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := GPUs(t.Context(), GPUOptions{Kind: tt.kind, Root: tt.machine, Env: environment(tt.env)})
			if ids(got) != tt.want || errorText(err) != tt.err {
				t.Errorf("got %q, %v\nwant %q, %s", ids(got), err, tt.want, tt.err)
			}
			if bad := (*VariableError)(nil); errors.As(err, &bad) == (tt.err == "") {
				t.Errorf("%T", err)
			}
		})
	}
}

func TestDeniedGPUs(t *testing.T) {
	refuse := func(names ...string) func(fs.FS, string) error {
		return func(root fs.FS, name string) error {
			for _, n := range names {
				if strings.HasPrefix(name, n) {
					return &fs.PathError{Op: "open", Path: "/" + name, Err: fs.ErrPermission}
				}
			}
			return openable(root, name)
		}
	}
	const advice = ": permission denied: add this user to the group that owns the file (mostly render), or give the container the device"
	arc := drmMachine(drmDevice{"xe", "8086:E20B", "0000:03:00.0", 1})
	laptop := drmMachine(drmDevice{"xe", "8086:7D55", "0000:00:02.0", 1})
	for _, tt := range []struct {
		name    string
		machine fstest.MapFS
		kind    Kind
		refuse  []string
		want    string
		err     string
	}{
		{
			name: "the compute node", machine: eightInstincts(), refuse: []string{"dev/kfd"},
			err: "open the AMD GPU 0000:05:00.0: open /dev/kfd" + advice,
		},
		{
			name: "all render nodes", machine: eightInstincts(), kind: CUDAGPU, refuse: []string{"dev/dri"},
			err: "open the AMD GPU 0000:05:00.0: open /dev/dri/renderD128" + advice,
		},
		{name: "one render node", machine: eightInstincts(), refuse: []string{"dev/dri/renderD128"}, want: "0@15 1@25 2@35 3@45 4@55 5@65 6@75"},
		{name: "Intel", machine: arc, refuse: []string{"dev/dri"}, err: "open the Intel GPU 0000:03:00.0: open /dev/dri/renderD128" + advice},
		{name: "an integrated GPU does not count", machine: laptop, refuse: []string{"dev/dri"}},
		{
			name: "an integrated GPU is asked for", machine: laptop, kind: XPU, refuse: []string{"dev/dri"},
			err: "open the Intel GPU 0000:00:02.0: open /dev/dri/renderD128" + advice,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := GPUs(t.Context(), GPUOptions{
				Kind: tt.kind, Root: tt.machine, Env: environment(nil), open: refuse(tt.refuse...),
			})
			if ids(got) != tt.want || errorText(err) != tt.err || err != nil && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("got %q, %v\nwant %q, %s", ids(got), err, tt.want, tt.err)
			}
		})
	}
}
