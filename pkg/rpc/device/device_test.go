package device

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in, out string
		want    Device
		err     string
	}{
		{in: "cpu", out: "cpu", want: CPU()},
		{in: "cpu:0", out: "cpu", want: CPU()},
		{in: "cuda:3", out: "cuda:3", want: CUDA(3)},
		{in: "cuda", out: "cuda:0", want: CUDA(0)},
		{in: "xpu:1", out: "xpu:1", want: Device{Type: "xpu", Index: 1}},
		{in: "cuda:-1", out: "cuda:-1", want: CUDA(-1)}, // Validate rejects it, with a better error
		{in: "", err: `device "": write a type and an index, such as cuda:0`},
		{in: ":1", err: `device ":1": write a type and an index, such as cuda:0`},
		{in: "cpu:1", err: `device "cpu:1": write a type and an index, such as cuda:0`},
		{in: "cuda:", err: `device "cuda:": write a type and an index, such as cuda:0`},
		{in: "cuda:0:1", err: `device "cuda:0:1": write a type and an index, such as cuda:0`},
	} {
		got, err := Parse(tt.in)
		if text(err) != tt.err || got != tt.want || err == nil && got.String() != tt.out {
			t.Errorf("Parse(%q) = %v, %v; want %v, %s", tt.in, got, err, tt.out, tt.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"cpu", "cuda:1", "cuda:-1", "cuda:+01", ":", "a:b:0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		d, err := Parse(in)
		if err != nil {
			return
		}
		if again, err := Parse(d.String()); err != nil || again != d {
			t.Errorf("Parse(%q) = %v, which is read as %v, %v", in, d, again, err)
		}
		if _, err := d.MarshalText(); err != nil {
			t.Errorf("Parse(%q) = %v, which cannot be written: %v", in, d, err)
		}
	})
}

func TestCompare(t *testing.T) {
	got := []Device{CUDA(1), {Type: "xpu"}, CUDA(0), CPU(), CUDA(-1)}
	slices.SortFunc(got, Compare)
	if diff := cmp.Diff([]Device{CUDA(-1), CPU(), CUDA(0), {Type: "xpu"}, CUDA(1)}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A device that can be encoded is decoded to the same device.
func TestJSON(t *testing.T) {
	written, err := json.Marshal(Map{CUDA(1): CPU(), CPU(): CUDA(0)})
	if want := `{"cpu":"cuda:0","cuda:1":"cpu"}`; err != nil || string(written) != want {
		t.Fatalf("wrote %s, %v; want %s", written, err, want)
	}
	var read Map
	if err := json.Unmarshal(written, &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Map{CUDA(1): CPU(), CPU(): CUDA(0)}, read); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if err := json.Unmarshal([]byte(`{"cuda:x":"cpu"}`), &read); err == nil {
		t.Errorf("read a device without a number: %v", read)
	}
	for _, d := range []Device{{}, {Type: "cpu", Index: 1}, {Type: "a:0"}} {
		if written, err := json.Marshal([]Device{d}); err == nil {
			t.Errorf("wrote %#v, which no worker can read, as %s", d, written)
		}
	}
}

func TestMapString(t *testing.T) {
	m := Map{CUDA(10): CUDA(1), CUDA(2): CPU(), CPU(): CUDA(0), CUDA(0): CUDA(2)}
	if got, want := m.String(), "{cpu->cuda:0, cuda:0->cuda:2, cuda:2->cpu, cuda:10->cuda:1}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := Map(nil).String(); got != "{}" {
		t.Errorf("no map is %s", got)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
