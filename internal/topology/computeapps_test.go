package topology

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestComputeApps(t *testing.T) {
	t.Parallel()
	const listing = `case "$*" in
"--query-compute-apps=pid,process_name --format=csv,noheader")
	echo "41, /usr/bin/python3, train.py"; echo "42, python3"; echo "[N/A], [N/A]"; echo "41, /usr/bin/python3"; echo "43, x";;
*) echo "unexpected arguments: $*"; exit 2;;
esac`
	for _, tt := range []struct {
		name, script string
		timeout      time.Duration // 0 for the usual
		want         []string
		err          string
	}{
		{name: "some are ours", script: listing, want: []string{"pid 41 (/usr/bin/python3, train.py)", "pid 43 (x)"}},
		{name: "none", script: "true"},
		{name: "no devices", script: "echo No devices were found; exit 6"},
		{name: "broken", script: "echo lost >&2; exit 15", err: "exit status 15 (lost)"},
		{name: "hanging", script: "sleep 1000", timeout: 100 * time.Millisecond, err: "no answer: no end within 100ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"PATH": fakeSMI(t, tt.script)}
			apps := FindComputeApps(GPUOptions{Root: fstest.MapFS{}, Env: environment(env), Timeout: tt.timeout})
			got, err := apps.InUse(t.Context(), map[int]bool{41: true, 43: true, 44: true})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.err != "") ||
				err != nil && !strings.HasSuffix(err.Error(), "which processes use GPUs: "+tt.err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestFindComputeApps checks that nvidia-smi is not used without GPUs, and that nothing is run.
func TestFindComputeApps(t *testing.T) {
	smi := fakeSMI(t, "exit 3")
	for _, tt := range []struct {
		name    string
		path    string
		visible string // "unset" means not in the environment
		machine fstest.MapFS
		want    bool
	}{
		{name: "a machine with GPUs", path: smi, visible: "unset", machine: fourGPUs(), want: true},
		{name: "the driver's list is not there", path: smi, visible: "0", want: true},
		{name: "no nvidia-smi", path: t.TempDir(), visible: "unset", machine: fourGPUs()},
		{name: "GPUs are hidden", path: smi, visible: "", machine: fourGPUs()},
		{name: "the driver has none", path: smi, visible: "unset", machine: files(map[string]string{"proc/driver/nvidia/gpus/none": ""})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"PATH": tt.path}
			if tt.visible != "unset" {
				env["CUDA_VISIBLE_DEVICES"] = tt.visible
			}
			machine := tt.machine
			if machine == nil {
				machine = fstest.MapFS{}
			}
			if got := FindComputeApps(GPUOptions{Root: machine, Env: environment(env)}) != nil; got != tt.want {
				t.Errorf("asked: %v", got)
			}
		})
	}
}

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
	dir := fakeSMI(
		t,
		`[ "$1" = --query-gpu=index,utilization.gpu,memory.used,memory.total ] && echo '0, 7 %, 3 MiB, 8 MiB'`,
	)
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
