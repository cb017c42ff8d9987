package topology

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	drmDevices = "sys/class/drm"
	// integratedIntel is the PCI address of every integrated GPU of Intel (QEMU, docs/igd-assign.txt). A discrete GPU has
	// it only if a virtual machine puts it there.
	integratedIntel = "0000:00:02.0"
)

// intelTiles has the number of tiles of each Intel GPU, by PCI address.
type intelTiles map[string]int

// intelHardware lists Intel's GPUs in the order of torch: discrete ones first (torch 2.15 torch/xpu/__init__.py,
// _enum_zes_device_infos), then by PCI address. The files are the device's uevent (Linux, drivers/pci/pci-driver.c
// pci_uevent) and, for tiles, the folders that the drivers make: tileN of xe (drivers/gpu/drm/xe/xe_tile_sysfs.c), and
// gtN of i915 (drivers/gpu/drm/i915/gt/intel_gt_sysfs.c).
func intelHardware(root fs.FS, open func(fs.FS, string) error) (*hardware, intelTiles) {
	var found hardware
	tiles := intelTiles{}
	for _, minor := range numbered(root, drmDevices, "renderD") {
		name := "renderD" + strconv.Itoa(minor)
		device := path.Join(drmDevices, name, "device")
		event := properties(root, path.Join(device, "uevent"), "=")
		id, isIntel := strings.CutPrefix(event["PCI_ID"], "8086:")
		driver := event["DRIVER"]
		if !isIntel || driver != "i915" && driver != "xe" {
			continue
		}
		slot := event["PCI_SLOT_NAME"]
		tiles[slot] = 1
		switch {
		case driver == "xe":
			tiles[slot] = max(1, len(numbered(root, device, "tile")))
		case isPonteVecchio(id):
			for _, card := range numbered(root, path.Join(device, "drm"), "card") {
				tiles[slot] = max(1, len(numbered(root, path.Join(device, "drm/card"+strconv.Itoa(card), "gt"), "gt")))
			}
		}
		found.add(GPU{Vendor: Intel, PCI: slot, Integrated: slot == integratedIntel}, open(root, "dev/dri/"+name))
	}
	slices.SortStableFunc(found.gpus, func(a, b GPU) int {
		if a.Integrated != b.Integrated {
			if a.Integrated {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(len(a.PCI), len(b.PCI)), cmp.Compare(a.PCI, b.PCI))
	})
	return &found, tiles
}

// isPonteVecchio reports whether a PCI device has tiles that i915 shows as gtN. On other devices of i915 gt1 is the
// media engine. The numbers are those of INTEL_PVC_IDS in Linux's include/drm/intel/pciids.h.
func isPonteVecchio(id string) bool {
	return strings.HasPrefix(id, "0BD") || strings.HasPrefix(id, "0BE") || id == "0B69" || id == "0B6E"
}
