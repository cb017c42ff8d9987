package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// torchCounter is a Python program that reads cases from stdin and prints what torch would count on such a machine, one
// a line. amdsmi and pyzes, by which torch asks the drivers, are replaced by the machine of the case.
const torchCounter = `
import json, os, sys, types
from ctypes import Structure, c_int, c_uint32, c_void_p, cast, POINTER
import torch, torch.cuda, torch.xpu
torch.version.hip = "7.0"
z = types.ModuleType("pyzes")
sys.modules["pyzes"] = z
class ext(Structure):
    _fields_ = [("stype", c_int), ("pNext", c_void_p), ("flags", c_uint32)]
class props(Structure):
    _fields_ = [("stype", c_int), ("pNext", c_void_p), ("numSubdevices", c_uint32)]
z.ZE_RESULT_SUCCESS = z.ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES = z.ZES_STRUCTURE_TYPE_DEVICE_EXT_PROPERTIES = 0
z.zes_device_properties_t, z.zes_device_ext_properties_t = props, ext
z.zes_driver_handle_t = z.zes_device_handle_t = c_int
z.zesInit = lambda flags: 0
def get(count, handles, number):
    if handles is None:
        count._obj.value = number
    else:
        for i in range(number):
            handles[i] = i
    return 0
z.zesDriverGet = lambda count, handles: get(count, handles, 1)
z.zesDeviceGet = lambda driver, count, handles: get(count, handles, len(case["intel"]))
def properties(device, p):
    tiles = case["intel"][device]
    p._obj.numSubdevices = tiles if tiles > 1 else 0
    cast(p._obj.pNext, POINTER(ext))[0].flags = 1 if tiles == 0 else 0
    return 0
z.zesDeviceGetProperties = properties
for line in sys.stdin:
    case = json.loads(line)
    os.environ.update(case["env"])
    if case["intel"] is None:
        torch.cuda._raw_device_count_amdsmi = lambda: case["amd"]
        torch.cuda._raw_device_uuid_amdsmi = lambda: case["uuids"]
        try:
            print(torch.cuda._device_count_amdsmi())
        except RuntimeError:
            print("refused")
    else:
        print(torch.xpu._device_count_zes())
    for name in case["env"]:
        del os.environ[name]
`

// torchCase is a machine with eight GPUs of AMD, or with GPUs of Intel of these tiles each. 0 stands for an integrated
// GPU, which is the last, as Level Zero reports it.
type torchCase struct {
	AMD   int               `json:"amd"`
	UUIDs []string          `json:"uuids"`
	Intel []int             `json:"intel"`
	Env   map[string]string `json:"env"`
}

func (c torchCase) machine() (fstest.MapFS, Kind) {
	if c.Intel == nil {
		return eightInstincts(), CUDAGPU
	}
	var devices []drmDevice
	for i, tiles := range c.Intel {
		slot := integratedIntel
		if tiles > 0 {
			slot = fmt.Sprintf("0000:%02x:00.0", 3+i)
		}
		devices = append(devices, drmDevice{"xe", "8086:0BD5", slot, max(tiles, 1)})
	}
	return drmMachine(devices...), XPU
}

// TestGPUsAsTorch compares the count of GPUs with that of torch, for variables that the runtimes of AMD and Intel read
// in the same way.
func TestGPUsAsTorch(t *testing.T) {
	const rocr, hip, cuda = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
	uuids := make([]string, 8)
	for i := range uuids {
		uuids[i] = fmt.Sprintf("%016x", instinct(5+16*i, 0, 0).unique)
	}
	var cases []torchCase
	for _, env := range []map[string]string{
		{},
		{rocr: "3,1"},
		{hip: "3,1"},
		{cuda: "3,1"},
		{hip: "1"},
		{hip: ""},
		{hip: "-1"},
		{hip: "2,-1,3"},
		{hip: "9"},
		{hip: "1,8,2"},
		{hip: "1,1"},
		{cuda: "NoDevFiles"},
		{cuda: ""},
		{hip: "3", cuda: ""},
		{hip: "3", cuda: "0,1"},
		{rocr: "7,6,5", hip: "2,0"},
		{rocr: "7", hip: "0,1"},
		{hip: "GPU-abc0000000000035"},
		{hip: "GPU-abc"},
		{hip: "GPU-abc0000000000035,GPU-abc0000000000005"},
		{hip: "GPU-abc0000000000035,GPU-fff,GPU-abc0000000000005"},
	} {
		cases = append(cases, torchCase{AMD: 8, UUIDs: uuids, Env: env})
	}
	for _, tiles := range [][]int{{1}, {0}, {1, 0}, {2, 2}, {2, 2, 0}, {1, 1, 1, 1}} {
		for _, env := range []map[string]string{
			{},
			{affinityEnv: "0"},
			{affinityEnv: "1"},
			{affinityEnv: "3,0"},
			{affinityEnv: "0,9,-1,0"},
			{hierarchyEnv: "COMPOSITE"},
			{hierarchyEnv: "COMPOSITE", affinityEnv: "1"},
			{hierarchyEnv: "COMBINED", affinityEnv: "2"},
		} {
			cases = append(cases, torchCase{Intel: tiles, Env: env})
		}
	}
	for _, version := range []string{"2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			if version == testenv.Official && !testenv.Whole(t) {
				t.Skip("only in make soak")
			}
			for i, want := range countWithTorch(t, testenv.Torch(t, version), cases) {
				machine, kind := cases[i].machine()
				gpus, err := GPUs(t.Context(), GPUOptions{Kind: kind, Root: machine, Env: environment(cases[i].Env)})
				got := strconv.Itoa(len(gpus))
				if bad := (*VariableError)(nil); errors.As(err, &bad) {
					got = "refused"
				}
				if got != want {
					t.Errorf("%+v: %s (%v), torch has %s", cases[i], got, err, want)
				}
			}
		})
	}
}

func countWithTorch(t *testing.T, python string, cases []torchCase) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stdin, stderr strings.Builder
	for _, c := range cases {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		stdin.Write(line)
		stdin.WriteByte('\n')
	}
	cmd := exec.CommandContext(ctx, python, "-c", torchCounter)
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin.String()), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("count with torch: %v\n%s", err, &stderr)
	}
	counts := strings.Fields(string(out))
	if len(counts) != len(cases) {
		t.Fatalf("%d counts for %d cases:\n%s", len(counts), len(cases), &stderr)
	}
	return counts
}
