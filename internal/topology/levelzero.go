package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The environment variables by which Intel's runtimes select GPUs.
const (
	hierarchyEnv = "ZE_FLAT_DEVICE_HIERARCHY"
	affinityEnv  = "ZE_AFFINITY_MASK"
	selectorEnv  = "ONEAPI_DEVICE_SELECTOR"
)

// zeDevice is a device of Level Zero.
type zeDevice struct {
	GPU
	// tiles are the numbers of its visible sub-devices. A device without sub-devices has none.
	tiles []int
}

// intelGPUs returns the GPUs of Intel that a new worker would see, as torch.xpu counts them.
func intelGPUs(found *hardware, tiles intelTiles, env func(string) (string, bool), kind Kind) ([]GPU, error) {
	if err := found.usable(kind); err != nil {
		return nil, err
	}
	devices, err := zeDevices(found.gpus, tiles, env)
	if err != nil {
		return nil, err
	}
	visible, err := selectOneAPI(devices, env)
	if err != nil {
		return nil, err
	}
	return withoutIntegrated(visible, kind), nil
}

// zeDevices returns the devices that Level Zero would report. ZE_FLAT_DEVICE_HIERARCHY decides whether each tile is a
// device of its own, which is the default. ZE_AFFINITY_MASK selects devices, and with COMPOSITE also tiles, and does
// not order them. Numbers beyond the machine are ignored (Level Zero specification, "Affinity Mask").
func zeDevices(gpus []GPU, tiles intelTiles, env func(string) (string, bool)) ([]zeDevice, error) {
	hierarchy, _ := env(hierarchyEnv)
	if !slices.Contains([]string{"", "FLAT", "COMBINED", "COMPOSITE"}, hierarchy) {
		return nil, &VariableError{hierarchyEnv, hierarchy, "it must be FLAT, COMBINED or COMPOSITE"}
	}
	composite := hierarchy == "COMPOSITE"
	var all []zeDevice
	for _, gpu := range gpus {
		switch count := tiles[gpu.PCI]; {
		case composite && count > 1:
			device := zeDevice{GPU: gpu}
			for tile := range count {
				device.tiles = append(device.tiles, tile)
			}
			all = append(all, device)
		default:
			all = append(all, slices.Repeat([]zeDevice{{GPU: gpu}}, count)...)
		}
	}
	for i := range all {
		all[i].ID = strconv.Itoa(i)
	}
	mask, _ := env(affinityEnv)
	if strings.TrimSpace(mask) == "" {
		return all, nil
	}
	return maskDevices(all, mask, composite)
}

// maskDevices returns the devices and tiles in a mask. An entry without a tile selects the whole device.
func maskDevices(all []zeDevice, mask string, composite bool) ([]zeDevice, error) {
	whole, parts := map[int]bool{}, map[int][]int{}
	for entry := range strings.SplitSeq(mask, ",") {
		number, tile, dotted := strings.Cut(strings.TrimSpace(entry), ".")
		device, err := strconv.Atoi(number)
		part, err2 := 0, error(nil)
		if dotted {
			part, err2 = strconv.Atoi(tile)
		}
		switch {
		case err != nil || err2 != nil:
			return nil, &VariableError{affinityEnv, mask, fmt.Sprintf(
				"%q is not the number of a device: write a list such as 0,1", strings.TrimSpace(entry))}
		case dotted && !composite:
			return nil, &VariableError{affinityEnv, mask, "device.tile needs " + hierarchyEnv +
				"=COMPOSITE: without it each tile has a number of its own, as in 0,1"}
		case dotted:
			parts[device] = append(parts[device], part)
		default:
			whole[device] = true
		}
	}
	var visible []zeDevice
	for i, device := range all {
		if !whole[i] {
			hidden := func(tile int) bool { return !slices.Contains(parts[i], tile) }
			device.tiles = slices.DeleteFunc(slices.Clone(device.tiles), hidden)
			if len(device.tiles) == 0 {
				continue
			}
			device.ID = tileNames(i, device.tiles)
		}
		visible = append(visible, device)
	}
	return visible, nil
}

// tileNames returns the tiles of a device as ZE_AFFINITY_MASK names them.
func tileNames(device int, tiles []int) string {
	names := make([]string, len(tiles))
	for i, tile := range tiles {
		names[i] = fmt.Sprintf("%d.%d", device, tile)
	}
	return strings.Join(names, ",")
}

// selectOneAPI applies ONEAPI_DEVICE_SELECTOR to the devices of Level Zero, which are the only ones that torch.xpu uses
// (DPC++, sycl/doc/EnvironmentVariables.md). A tile that is selected by itself is a device of its own.
func selectOneAPI(devices []zeDevice, env func(string) (string, bool)) ([]GPU, error) {
	selector, _ := env(selectorEnv)
	filters, err := parseSelector(selector)
	if err != nil {
		return nil, err
	}
	var visible []GPU
	for i, device := range devices {
		if filters.accept(i, noTile) {
			visible = append(visible, device.GPU)
		}
		number, _, _ := strings.Cut(device.ID, ".")
		for order, tile := range device.tiles {
			if filters.accept(i, order) {
				part := device.GPU
				part.ID = number + "." + strconv.Itoa(tile)
				visible = append(visible, part)
			}
		}
	}
	return visible, nil
}

const (
	noTile  = -1 // the device as a whole
	anyUnit = -2 // any device, or any tile: *
	noUnit  = -3 // a device of another type than a GPU
)

// selectorFilter accepts or discards devices, or tiles of devices.
type selectorFilter struct {
	discard      bool
	device, tile int
}

type selectorFilters []selectorFilter

// accept reports whether the device, or its tile, is accepted by a filter and discarded by none. Without a filter that
// accepts, all devices are accepted, but not their tiles.
func (s selectorFilters) accept(device, tile int) bool {
	accepts, accepted := false, false
	for _, f := range s {
		match := (f.device == anyUnit || f.device == device) &&
			(f.tile == tile || f.tile == anyUnit && tile != noTile)
		if f.discard && match {
			return false
		}
		accepts = accepts || !f.discard
		accepted = accepted || match
	}
	return accepted || !accepts && tile == noTile
}

// parseSelector parses the terms of ONEAPI_DEVICE_SELECTOR: [!]BACKEND:DEVICE[,DEVICE…], separated by semicolons.
// Terms of other backends than Level Zero become filters that match nothing.
func parseSelector(selector string) (selectorFilters, error) {
	refuse := func(format string, args ...any) error {
		return &VariableError{selectorEnv, selector, fmt.Sprintf(format, args...) +
			": write filters such as level_zero:0,1 or level_zero:gpu"}
	}
	if strings.TrimSpace(selector) == "" {
		return nil, nil
	}
	var filters selectorFilters
	for term := range strings.SplitSeq(strings.ToLower(selector), ";") {
		term, discard := strings.CutPrefix(strings.TrimSpace(term), "!")
		backend, list, ok := strings.Cut(term, ":")
		if !ok {
			return nil, refuse("%q is not BACKEND:DEVICES", term)
		}
		switch backend {
		case "level_zero", "*":
		case "opencl", "cuda", "hip", "native_cpu":
			filters = append(filters, selectorFilter{discard, noUnit, noTile})
			continue
		default:
			return nil, refuse("%q is not a backend", backend)
		}
		for device := range strings.SplitSeq(list, ",") {
			f, ok := parseSelected(strings.TrimSpace(device))
			if !ok {
				return nil, refuse("%q is not a device", device)
			}
			f.discard = discard
			filters = append(filters, f)
		}
	}
	return filters, nil
}

// parseSelected parses one device of a term. Sub-devices of tiles are not known here, and are refused.
func parseSelected(device string) (selectorFilter, bool) {
	f := selectorFilter{tile: noTile}
	switch device {
	case "gpu", "*":
		f.device = anyUnit
		return f, true
	case "cpu", "fpga":
		f.device = noUnit
		return f, true
	}
	number, tile, dotted := strings.Cut(device, ".")
	var ok, ok2 bool
	f.device, ok = parseUnit(number)
	if ok2 = true; dotted {
		f.tile, ok2 = parseUnit(tile)
	}
	return f, ok && ok2
}

// parseUnit parses a number or *.
func parseUnit(text string) (int, bool) {
	if text == "*" {
		return anyUnit, true
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil
}
