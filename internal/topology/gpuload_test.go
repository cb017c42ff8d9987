package topology

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestParseLoad(t *testing.T) {
	for _, tt := range []struct {
		name, out string
		want      []GPULoad
		err       string
	}{
		{name: "no GPU"},
		{
			name: "two", out: "0, 34 %, 1024 MiB, 81559 MiB\n10, 0 %, 0 MiB, 81559 MiB\n",
			want: []GPULoad{{0, 34, 1 << 30, 81559 << 20}, {10, 0, 0, 81559 << 20}},
		},
		{name: "a part of it is not known", out: "0, [N/A], [Not Supported], 81559 MiB\n", want: []GPULoad{{0, -1, -1, 81559 << 20}}},
		{name: "another unit", out: "0, 1, 5 GiB, 81559 MiB", want: []GPULoad{{0, -1, -1, 81559 << 20}}},
		{name: "no numbers", out: "hello, you, there, !", err: "does not start with an index"},
		{name: "fewer fields", out: "0, 1 %", err: "in place of index"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseLoad(tt.out)
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseLoad(f *testing.F) {
	f.Add("0, 34 %, 1024 MiB, 81559 MiB\n")
	f.Fuzz(func(t *testing.T, out string) {
		gpus, err := parseLoad(out)
		if err != nil && gpus != nil {
			t.Error("both GPUs and an error")
		}
		for _, g := range gpus {
			if g.Index < 0 || g.Utilization < -1 || g.MemoryUsed < -1 || g.MemoryTotal < -1 {
				t.Errorf("%+v", g)
			}
		}
	})
}

func TestLoad(t *testing.T) {
	dir := fakeSMI(t, `[ "$1" = --query-gpu=index,utilization.gpu,memory.used,memory.total ] && echo '0, 7 %, 3 MiB, 8 MiB'`)
	c := FindComputeApps(GPUOptions{Root: fstest.MapFS{}, Env: environment(map[string]string{"PATH": dir})})
	if c == nil {
		t.Fatal("no nvidia-smi")
	}
	got, err := c.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]GPULoad{{0, 7, 3 << 20, 8 << 20}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
