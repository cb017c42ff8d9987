package topology

import (
	"maps"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// gpuInformation returns the driver's file about one device.
func gpuInformation(uuid, minor, excluded string) string {
	return "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 240\nGPU UUID: \t " + uuid +
		"\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nBus Location: \t 0000:65:00.0\nDevice Minor: \t " + minor +
		"\nGPU Excluded:\t " + excluded + "\n"
}

// fourGPUs returns a machine whose device minors are not in the order of the PCI bus.
func fourGPUs() fstest.MapFS {
	return files(map[string]string{
		"proc/driver/nvidia/gpus/0000:65:00.0/information":  gpuInformation("GPU-bbbb1111-0000", "0", "No"),
		"proc/driver/nvidia/gpus/0000:17:00.0/information":  gpuInformation("GPU-aaaa0000-0000", "1", "No"),
		"proc/driver/nvidia/gpus/10000:01:00.0/information": gpuInformation("GPU-dddd3333-0000", "3", "No"),
		"proc/driver/nvidia/gpus/0000:ca:00.0/information":  gpuInformation("GPU-bbbb2222-0000", "2", "No"),
		"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidia2": "", "dev/nvidia3": "", "dev/nvidiactl": "",
	})
}

func without(machine fstest.MapFS, names ...string) fstest.MapFS {
	rest := maps.Clone(machine)
	for _, name := range names {
		delete(rest, name)
	}
	return rest
}

func with(machine fstest.MapFS, name, text string) fstest.MapFS {
	more := maps.Clone(machine)
	more[name] = &fstest.MapFile{Data: []byte(text)}
	return more
}

func TestGPUs(t *testing.T) {
	gpu := []GPU{
		{ID: "0", PCI: "0000:17:00.0", UUID: "GPU-aaaa0000-0000"},
		{ID: "1", PCI: "0000:65:00.0", UUID: "GPU-bbbb1111-0000"},
		{ID: "2", PCI: "0000:ca:00.0", UUID: "GPU-bbbb2222-0000"},
		{ID: "3", PCI: "10000:01:00.0", UUID: "GPU-dddd3333-0000"},
	}
	named := func(g GPU, id string) GPU {
		g.ID = id
		return g
	}
	const (
		gpus    = "proc/driver/nvidia/gpus/"
		gpu0    = gpus + "0000:17:00.0/information"
		visible = "CUDA_VISIBLE_DEVICES"
	)
	tests := []struct {
		name    string
		machine fstest.MapFS
		visible *string
		want    []GPU
	}{
		{"no driver", fstest.MapFS{}, nil, nil},
		{"all, in bus order", fourGPUs(), nil, gpu},
		{"driver without devices", files(map[string]string{"proc/driver/nvidia/gpus": ""}), nil, nil},
		{
			"excluded device",
			with(fourGPUs(), gpu0, gpuInformation("GPU-aaaa0000-0000", "1", "Yes")),
			nil,
			[]GPU{named(gpu[1], "0"), named(gpu[2], "1"), named(gpu[3], "2")},
		},
		{
			"container with one device node",
			without(fourGPUs(), "dev/nvidia0", "dev/nvidia1", "dev/nvidia3"),
			nil,
			[]GPU{named(gpu[2], "0")},
		},
		{
			"container without device nodes",
			without(fourGPUs(), "dev/nvidia0", "dev/nvidia1", "dev/nvidia2", "dev/nvidia3"),
			nil,
			nil,
		},
		{
			"information that cannot be read", with(without(fourGPUs(), gpu0), gpus+"0000:17:00.0/registry", ""), nil,
			[]GPU{{ID: "0", PCI: "0000:17:00.0"}, gpu[1], gpu[2], gpu[3]},
		},
		{
			"UUID not yet known", with(fourGPUs(), gpu0, gpuInformation("GPU-????????-????", "1", "No")), nil,
			[]GPU{{ID: "0", PCI: "0000:17:00.0"}, gpu[1], gpu[2], gpu[3]},
		},

		{"hidden by an empty list", fourGPUs(), new(""), nil},
		{"hidden by -1", fourGPUs(), new("-1"), nil},
		{"hidden by NoDevFiles", fourGPUs(), new("NoDevFiles"), nil},
		{"chosen and ordered", fourGPUs(), new("2,0"), []GPU{gpu[2], gpu[0]}},
		{"index beyond the machine ends the list", fourGPUs(), new("1,4,0"), []GPU{gpu[1]}},
		{"negative index ends the list", fourGPUs(), new("0,2,-1,1"), []GPU{gpu[0], gpu[2]}},
		{"repeated index empties the list", fourGPUs(), new("0,1,0"), nil},
		{
			"by UUID",
			fourGPUs(),
			new("GPU-dddd3333-0000,GPU-aaaa0000-0000"),
			[]GPU{named(gpu[3], "GPU-dddd3333-0000"), named(gpu[0], "GPU-aaaa0000-0000")},
		},
		{"by short UUID", fourGPUs(), new("GPU-bbbb2,GPU-a"), []GPU{named(gpu[2], "GPU-bbbb2"), named(gpu[0], "GPU-a")}},
		{"ambiguous UUID ends the list", fourGPUs(), new("GPU-a,GPU-bbbb,GPU-d"), []GPU{named(gpu[0], "GPU-a")}},
		{"unknown UUID ends the list", fourGPUs(), new("GPU-a,GPU-ffff,GPU-d"), []GPU{named(gpu[0], "GPU-a")}},
		{
			"UUID among unread ones is believed",
			with(fourGPUs(), gpu0, gpuInformation("GPU-????", "1", "No")),
			new("GPU-aaaa,GPU-d"),
			[]GPU{{ID: "GPU-aaaa"}, named(gpu[3], "GPU-d")},
		},
		{
			"MIG instances of one GPU", fourGPUs(), new("MIG-GPU-dddd3333-0000/1/0,MIG-GPU-dddd3333-0000/2/0"),
			[]GPU{named(gpu[3], "MIG-GPU-dddd3333-0000/1/0"), named(gpu[3], "MIG-GPU-dddd3333-0000/2/0")},
		},
		{
			"MIG instances by their own UUID",
			fourGPUs(),
			new("MIG-c6d4f1ef,MIG-cba663e8"),
			[]GPU{{ID: "MIG-c6d4f1ef"}, {ID: "MIG-cba663e8"}},
		},
		{"list on a machine that says nothing", fstest.MapFS{}, new("0,7"), []GPU{{ID: "0"}, {ID: "7"}}},
		{"UUIDs on a machine that says nothing", fstest.MapFS{}, new("GPU-a"), []GPU{{ID: "GPU-a", UUID: "GPU-a"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"PATH": t.TempDir()}
			if tt.visible != nil {
				env[visible] = *tt.visible
			}
			got, err := GPUs(t.Context(), GPUOptions{Root: tt.machine, Env: environment(env)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
			known, err := KnownGPUs(GPUOptions{Root: tt.machine, Env: environment(env)})
			if len(known) != len(tt.want) || err != nil {
				t.Errorf("KnownGPUs = %v, %v, want %v", known, err, tt.want)
			}
		})
	}
}

func TestParseVisible(t *testing.T) {
	tests := []struct {
		in   string
		want []string
	}{
		{"", nil},
		{" ", nil},
		{"0", []string{"0"}},
		{" 1 , 0 ", []string{"1", "0"}},
		{"+1,02", []string{"1", "2"}},
		{"1gpu2,2ampere", []string{"1", "2"}},
		{"0-2", []string{"0"}},
		{"0,,1", []string{"0"}},
		{"0,1,", []string{"0", "1"}},
		{",0", nil},
		{"none", nil},
		{"99999999999", nil},
		{"1,01", nil},
		{"0,GPU-a", []string{"0"}},
		{"GPU-a,0", []string{"GPU-a"}},
		{"GPU-a,MIG-b", []string{"GPU-a"}},
		{"GPU-a, GPU-b", []string{"GPU-a", "GPU-b"}},
		{"MIG-a,MIG-b,GPU-c", []string{"MIG-a", "MIG-b"}},
		{"GPU-a,GPU-a", nil},
		{"gpu-a", nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, parseVisible(tt.in)); diff != "" {
			t.Errorf("parseVisible(%q) (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestNormalizePCI(t *testing.T) {
	tests := []struct{ in, want, err string }{
		{"0000:65:00.0", "0000:65:00.0", ""},
		{" 00000000:CA:00.0", "0000:ca:00.0", ""},
		{"00010000:01:1f.7", "10000:01:1f.7", ""},
		{"65:00.0", "", `"65:00.0" is not a PCI address`},
		{"0000:65:00", "", `"0000:65:00" is not a PCI address`},
		{"0000:zz:00.0", "", `"0000:zz:00.0" is not a PCI address`},
		{"", "", `"" is not a PCI address`},
	}
	for _, tt := range tests {
		got, err := normalizePCI(tt.in)
		if got != tt.want || errorText(err) != tt.err {
			t.Errorf("normalizePCI(%q) = %q, %v", tt.in, got, err)
		}
	}
}
