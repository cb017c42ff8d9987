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
		{name: "hanging", script: "sleep 1000", timeout: 100 * time.Millisecond, err: "no answer within 100ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"PATH": fakeSMI(t, tt.script)}
			apps := FindComputeApps(GPUOptions{Root: fstest.MapFS{}, Env: environment(env), Timeout: tt.timeout})
			got, err := apps.InUse(t.Context(), map[int]bool{41: true, 43: true, 44: true})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.HasSuffix(err.Error(), "which processes use GPUs: "+tt.err) {
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
