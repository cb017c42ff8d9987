package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Vendor is the maker of a GPU. The zero value is NVIDIA.
type Vendor int

// The vendors whose GPUs torch can use.
const (
	NVIDIA Vendor = iota
	AMD
	Intel
)

// String returns the name of the vendor.
func (v Vendor) String() string {
	switch v {
	case NVIDIA:
		return "NVIDIA"
	case AMD:
		return "AMD"
	case Intel:
		return "Intel"
	}
	return fmt.Sprintf("Vendor(%d)", int(v))
}

// Kind selects GPUs by the part of torch that would use them.
type Kind int

const (
	// AnyGPU is what torch.accelerator would use: the GPUs of one vendor, NVIDIA before AMD before Intel. Integrated
	// GPUs of AMD and Intel do not count, because most installed builds of torch cannot use them.
	AnyGPU Kind = iota
	// CUDAGPU is what torch.cuda would use: NVIDIA's GPUs, else AMD's.
	CUDAGPU
	// XPU is what torch.xpu would use: Intel's GPUs.
	XPU
)

// hardware has the GPUs that the files of one vendor's driver list.
type hardware struct {
	// gpus can be opened by this process. They are in the order of the vendor's runtime.
	gpus []GPU
	// denied exist, but this process may not open them. why has the reason for each.
	denied []GPU
	why    []error
}

// add files a GPU under gpus or denied by the error of opening it. A GPU whose device node does not exist is hidden
// from this container, and is not added.
func (h *hardware) add(gpu GPU, err error) {
	switch {
	case err == nil:
		h.gpus = append(h.gpus, gpu)
	case !errors.Is(err, fs.ErrNotExist):
		h.denied, h.why = append(h.denied, gpu), append(h.why, err)
	}
}

// present reports whether there is a GPU of this kind, whether or not this process may open it.
func (h *hardware) present(kind Kind) bool {
	counts := func(g GPU) bool { return kind != AnyGPU || !g.Integrated }
	return slices.ContainsFunc(h.gpus, counts) || slices.ContainsFunc(h.denied, counts)
}

// usable returns an error if there are GPUs of this kind and this process may open none of them.
func (h *hardware) usable(kind Kind) error {
	if (&hardware{gpus: h.gpus}).present(kind) {
		return nil
	}
	for i, g := range h.denied {
		if kind != AnyGPU || !g.Integrated {
			return fmt.Errorf("open the %v GPU %s: %w: add this user to the group that owns the file (mostly render), or give "+
				"the container the device", g.Vendor, g.PCI, h.why[i])
		}
	}
	return nil
}

// withoutIntegrated returns the visible GPUs that count. With AnyGPU only discrete GPUs do. Otherwise it leaves out
// integrated GPUs at the end, unless all are integrated. It keeps those before a discrete GPU, so that a worker's GPU
// stays the one at its local rank.
func withoutIntegrated(gpus []GPU, kind Kind) []GPU {
	if kind == AnyGPU {
		return slices.DeleteFunc(gpus, func(g GPU) bool { return g.Integrated })
	}
	end := len(gpus)
	for end > 0 && gpus[end-1].Integrated {
		end--
	}
	if end == 0 {
		return gpus
	}
	return gpus[:end]
}

// VariableError is the error of an environment variable that selects GPUs and cannot be understood.
type VariableError struct {
	Name, Value string
	// Problem says what is wrong, and what to write instead.
	Problem string
}

// Error returns one line.
func (e *VariableError) Error() string { return fmt.Sprintf("%s=%q: %s", e.Name, e.Value, e.Problem) }

// openable returns the error that opening a device node below root would have. It does not open the node, because that
// wakes a GPU that sleeps.
func openable(root fs.FS, name string) error {
	_, err := fs.Stat(root, name)
	return err
}

// openableHere is openable for the file system of this machine. It respects groups and access control lists.
func openableHere(_ fs.FS, name string) error {
	if err := unix.Access("/"+name, unix.R_OK|unix.W_OK); err != nil {
		return &os.PathError{Op: "open", Path: "/" + name, Err: err}
	}
	return nil
}

// properties parses a file of lines of a name, a separator and a value. It returns nil if the file cannot be read.
func properties(root fs.FS, name, separator string) map[string]string {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return nil
	}
	values := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, separator); ok {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return values
}

// numbered returns the numbers of the entries of a folder whose names are prefix and a number, in ascending order.
func numbered(root fs.FS, dir, prefix string) []int {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil
	}
	var numbers []int
	for _, entry := range entries {
		text, ok := strings.CutPrefix(path.Base(entry.Name()), prefix)
		if n, isNumber := parseIndex(text); ok && isNumber && n == text {
			numbers = append(numbers, atoi(n))
		}
	}
	slices.Sort(numbers)
	return numbers
}
