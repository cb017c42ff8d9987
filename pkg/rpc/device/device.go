package device

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Types of devices, with torch's names.
const (
	cpuType  = "cpu"
	cudaType = "cuda"
)

// Device is a place for tensors, like torch.device. The zero value is no device.
type Device struct {
	// Type is "cpu" or "cuda". Parse accepts other types, but no worker has devices of them.
	Type string
	// Index is the number of the device among the visible devices of its type, from 0. The index of the CPU is 0.
	Index int
}

// CPU is the one device that every worker has.
func CPU() Device { return Device{Type: cpuType} }

// CUDA returns the GPU with this index.
func CUDA(index int) Device { return Device{Type: cudaType, Index: index} }

// Parse parses "cpu" and "cuda:1", the form of String. A type without an index has index 0.
func Parse(text string) (Device, error) {
	kind, number, numbered := strings.Cut(text, ":")
	if kind == "" {
		return Device{}, fmt.Errorf("device %q: write a type and an index, such as cuda:0", text)
	}
	if !numbered {
		return Device{Type: kind}, nil
	}
	index, err := strconv.Atoi(number)
	if err != nil || kind == cpuType && index != 0 {
		return Device{}, fmt.Errorf("device %q: write a type and an index, such as cuda:0", text)
	}
	return Device{Type: kind, Index: index}, nil
}

// String returns "cpu", or type and index such as "cuda:0".
func (d Device) String() string {
	if d.Type == cpuType && d.Index == 0 {
		return cpuType
	}
	return d.Type + ":" + strconv.Itoa(d.Index)
}

// MarshalText implements [encoding.TextMarshaler], so that devices can be keys of a JSON object. It returns an error
// for a device that Parse would not return, such as the zero value.
func (d Device) MarshalText() ([]byte, error) {
	text := d.String()
	if back, err := Parse(text); err != nil {
		return nil, err
	} else if back != d {
		return nil, fmt.Errorf("device %q would be read as %v: write a type and an index, such as cuda:0", text, back)
	}
	return []byte(text), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Device) UnmarshalText(text []byte) error {
	var err error
	*d, err = Parse(string(text))
	return err
}

// Compare orders devices by index, and devices with the same index by type.
func Compare(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Type, b.Type))
}

// Map maps devices of one worker, the source, to the devices of another, the target, that receive their tensors.
type Map map[Device]Device

// String lists the pairs ordered by source: "{cpu->cpu, cuda:0->cuda:1}".
func (m Map) String() string {
	pairs := make([]string, 0, len(m))
	for _, source := range slices.SortedFunc(maps.Keys(m), Compare) {
		pairs = append(pairs, source.String()+"->"+m[source].String())
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}
