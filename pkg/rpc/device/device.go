package device

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The types of device that are known, as torch names them.
const (
	cpuType  = "cpu"
	cudaType = "cuda"
)

// Device is a place where a worker keeps tensors, as torch.device is one. The zero value is no device.
type Device struct {
	// Type is "cpu" or "cuda"; others can be written, but no worker has one.
	Type string
	// Index is the device's number among those of its type that the worker sees, from 0. The CPU's is 0.
	Index int
}

// CPU is the one device that every worker has.
func CPU() Device { return Device{Type: cpuType} }

// CUDA is the GPU with this index.
func CUDA(index int) Device { return Device{Type: cudaType, Index: index} }

// Parse reads "cpu" and "cuda:1", the form of String. A type without an index means index 0.
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

// String returns "cpu" or, of other types, type and index: "cuda:0".
func (d Device) String() string {
	if d.Type == cpuType && d.Index == 0 {
		return cpuType
	}
	return d.Type + ":" + strconv.Itoa(d.Index)
}

// MarshalText implements [encoding.TextMarshaler], so that devices can be the keys of a JSON object. A device that Parse
// would not give back, such as the zero value, is an error of who writes it, and not of all who read it.
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

// Compare orders devices by index, and those of one index by type.
func Compare(a, b Device) int {
	return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Type, b.Type))
}

// Map says for devices of one worker, the source, which device of another, the target, takes what they hold.
type Map map[Device]Device

// String lists the pairs in the order of the sources: "{cpu->cpu, cuda:0->cuda:1}".
func (m Map) String() string {
	pairs := make([]string, 0, len(m))
	for _, source := range slices.SortedFunc(maps.Keys(m), Compare) {
		pairs = append(pairs, source.String()+"->"+m[source].String())
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}
