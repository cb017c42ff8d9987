package topology

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// drmDevice describes a DRM device for a test.
type drmDevice struct {
	driver, id, slot string
	tiles            int
}

// drmMachine returns a machine with these devices. uevent is as Linux's drivers/pci/pci-driver.c (pci_uevent) writes
// it, the folders of tiles are as the drivers xe and i915 make them.
func drmMachine(devices ...drmDevice) fstest.MapFS {
	machine := fstest.MapFS{}
	for i, d := range devices {
		render := fmt.Sprintf("renderD%d", 128+i)
		device := "sys/class/drm/" + render + "/device/"
		machine["dev/dri/"+render] = &fstest.MapFile{}
		machine[device+"uevent"] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"DRIVER=%s\nPCI_CLASS=38000\nPCI_ID=%s\nPCI_SUBSYS_ID=8086:2212\nPCI_SLOT_NAME=%s\nMODALIAS=pci:v00008086d00000BD5\n",
			d.driver, d.id, d.slot)}
		for tile := range d.tiles {
			name := fmt.Sprintf("%stile%d/gt%d/freq0/act_freq", device, tile, tile)
			if d.driver == "i915" {
				name = fmt.Sprintf("%sdrm/card%d/gt/gt%d/rps_act_freq_mhz", device, i, tile)
			}
			machine[name] = &fstest.MapFile{}
		}
	}
	return machine
}

func TestIntelFacts(t *testing.T) {
	machine := drmMachine(drmDevice{"xe", "8086:7D55", "0000:00:02.0", 1}, drmDevice{"xe", "8086:E20B", "0000:03:00.0", 1})
	got, err := GPUs(t.Context(), GPUOptions{Kind: XPU, Root: machine, Env: environment(map[string]string{affinityEnv: "1,0"})})
	want := []GPU{{Vendor: Intel, ID: "0", PCI: "0000:03:00.0"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestIntel(t *testing.T) {
	integrated := drmDevice{"i915", "8086:4680", "0000:00:02.0", 2} // gt1 of i915 is the media engine
	arc := drmDevice{"xe", "8086:E20B", "0000:03:00.0", 1}
	max1550 := func(bus string) drmDevice { return drmDevice{"xe", "8086:0BD5", "0000:" + bus + ":00.0", 2} }
	pvc := drmMachine(max1550("4d"), max1550("29"))
	oldPVC := drmMachine(drmDevice{"i915", "8086:0BD5", "0000:29:00.0", 2})
	desktop := drmMachine(integrated, arc)
	nvidia := with(with(drmMachine(integrated, drmDevice{"nvidia", "10DE:2330", "0000:17:00.0", 0}),
		"proc/driver/nvidia/gpus/0000:17:00.0/information", ""), "dev/nvidia0", "")
	mask := func(v string) map[string]string { return map[string]string{affinityEnv: v} }
	composite := func(v string) map[string]string {
		return map[string]string{affinityEnv: v, hierarchyEnv: "COMPOSITE"}
	}
	selected := func(v string) map[string]string { return map[string]string{selectorEnv: v} }
	selectedTiles := func(v string) map[string]string {
		return map[string]string{selectorEnv: v, hierarchyEnv: "COMPOSITE"}
	}
	const hint = ": write filters such as level_zero:0,1 or level_zero:gpu"
	tests := []struct {
		name    string
		machine fs.FS
		kind    Kind
		env     map[string]string
		want    string
		err     string
	}{
		{name: "no device", machine: fstest.MapFS{}, kind: XPU},
		{name: "Arc beside an integrated GPU", machine: desktop, want: "0@03"},
		{name: "Arc beside an integrated GPU for torch.xpu", machine: desktop, kind: XPU, want: "0@03"},
		{name: "torch.cuda uses no GPU of Intel", machine: desktop, kind: CUDAGPU},
		{name: "an integrated GPU alone", machine: drmMachine(integrated)},
		{name: "an integrated GPU alone for torch.xpu", machine: drmMachine(integrated), kind: XPU, want: "0@00:02"},
		{name: "NVIDIA beside an integrated GPU", machine: nvidia, want: "0@17"},
		{name: "NVIDIA beside an integrated GPU for torch.xpu", machine: nvidia, kind: XPU, want: "0@00:02"},
		{name: "a display adapter", machine: drmMachine(drmDevice{"ast", "1A03:2000", "0000:04:00.0", 0}), kind: XPU},
		{name: "the driver for virtual machines", machine: drmMachine(drmDevice{"vfio-pci", "8086:E20B", "0000:03:00.0", 0}), kind: XPU},
		{name: "no device node", machine: without(drmMachine(arc), "dev/dri/renderD128")},
		{name: "uevent that cannot be read", machine: deniedFS{drmMachine(arc), "sys/class/drm/renderD128/device/uevent"}},
		{name: "uevent that is garbage", machine: with(drmMachine(arc), "sys/class/drm/renderD128/device/uevent", "\x00=\xff\nPCI_ID"), kind: XPU},

		{name: "tiles", machine: pvc, want: "0@29 1@29 2@4d 3@4d"},
		{name: "tiles of i915", machine: oldPVC, want: "0@29 1@29"},
		{name: "tiles together with their device", machine: pvc, env: map[string]string{hierarchyEnv: "COMBINED"}, want: "0@29 1@29 2@4d 3@4d"},
		{name: "devices with tiles", machine: pvc, env: composite(""), want: "0@29 1@4d"},
		{
			name: "bad hierarchy", machine: pvc, env: map[string]string{hierarchyEnv: "flat"},
			err: `ZE_FLAT_DEVICE_HIERARCHY="flat": it must be FLAT, COMBINED or COMPOSITE`,
		},

		{name: "mask does not order", machine: pvc, env: mask("3,0"), want: "0@29 3@4d"},
		{name: "mask beyond the machine", machine: pvc, env: mask("1,4,-1,1"), want: "1@29"},
		{name: "mask of nothing that exists", machine: pvc, env: mask("9")},
		{name: "mask of a device", machine: pvc, env: composite("1"), want: "1@4d"},
		{name: "mask of a tile", machine: pvc, env: composite("1.1"), want: "1.1@4d"},
		{name: "mask of tiles", machine: pvc, env: composite("0.0,1.1,1.0"), want: "0.0@29 1.0,1.1@4d"},
		{name: "mask of the integrated GPU", machine: desktop, kind: XPU, env: mask("1"), want: "1@00:02"},
		{
			name: "mask of a tile of a flat machine", machine: pvc, env: mask("0.1"),
			err: `ZE_AFFINITY_MASK="0.1": device.tile needs ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE: without it each tile has a number of its own, as in 0,1`,
		},
		{name: "bad mask", machine: pvc, env: mask("0,x"), err: `ZE_AFFINITY_MASK="0,x": "x" is not the number of a device: write a list such as 0,1`},

		{name: "selector of numbers", machine: pvc, env: selected("level_zero:2,0"), want: "0@29 2@4d"},
		{name: "selector of all", machine: pvc, env: selected("*:*"), want: "0@29 1@29 2@4d 3@4d"},
		{name: "selector of GPUs", machine: pvc, env: selected("Level_Zero:GPU;opencl:cpu"), want: "0@29 1@29 2@4d 3@4d"},
		{name: "selector of another backend", machine: pvc, env: selected("opencl:gpu")},
		{name: "selector of CPUs", machine: pvc, env: selected("*:cpu")},
		{name: "selector that discards", machine: pvc, env: selected("!level_zero:0;!opencl:*"), want: "1@29 2@4d 3@4d"},
		{name: "selector that accepts and discards", machine: pvc, env: selected("level_zero:gpu;!level_zero:1"), want: "0@29 2@4d 3@4d"},
		{name: "selector of tiles", machine: pvc, env: selectedTiles("level_zero:1.*,0.1"), want: "0.1@29 1.0@4d 1.1@4d"},
		{name: "selector of all tiles", machine: pvc, env: selectedTiles("level_zero:*.*"), want: "0.0@29 0.1@29 1.0@4d 1.1@4d"},
		{
			name: "selector among the mask", machine: pvc, want: "3@4d",
			env: map[string]string{affinityEnv: "1,3", selectorEnv: "level_zero:1"},
		},
		{name: "selector without a backend", machine: pvc, env: selected("0"), err: `ONEAPI_DEVICE_SELECTOR="0": "0" is not BACKEND:DEVICES` + hint},
		{name: "selector of an unknown backend", machine: pvc, env: selected("metal:0"), err: `ONEAPI_DEVICE_SELECTOR="metal:0": "metal" is not a backend` + hint},
		{
			name: "selector of parts of tiles", machine: pvc, env: selected("level_zero:0.0.1"),
			err: `ONEAPI_DEVICE_SELECTOR="level_zero:0.0.1": "0.0.1" is not a device` + hint,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := GPUs(t.Context(), GPUOptions{Kind: tt.kind, Root: tt.machine, Env: environment(tt.env)})
			if ids(got) != tt.want || errorText(err) != tt.err {
				t.Errorf("got %q, %v\nwant %q, %s", ids(got), err, tt.want, tt.err)
			}
		})
	}
}
