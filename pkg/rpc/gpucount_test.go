package rpc

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// TestGPUsAreCounted runs a worker without elasticrun's variable, as under torchrun: its GPUs are those that CUDA sees.
func TestGPUsAreCounted(t *testing.T) {
	for _, dir := range []string{"/proc/driver/nvidia/gpus", "/sys/class/kfd/kfd/topology/nodes/1"} {
		if _, err := os.Stat(dir); err == nil {
			t.Skip("this machine has GPUs of its own")
		}
	}
	smi := filepath.Join(t.TempDir(), "nvidia-smi")
	if err := os.WriteFile(smi, []byte("#!/bin/sh\necho 'no driver' >&2\nexit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := map[string]device.Map{"w": {device.CUDA(0): device.CUDA(1)}}
	for _, tt := range []struct {
		name    string
		env     map[string]string
		options GRPCOptions
		want    error
		text    string
	}{
		{name: "two GPUs", env: map[string]string{"CUDA_VISIBLE_DEVICES": "4,7"}, options: GRPCOptions{DeviceMaps: own}},
		{
			name: "one GPU", env: map[string]string{"CUDA_VISIBLE_DEVICES": "4"}, options: GRPCOptions{DeviceMaps: own},
			want: device.ErrInvalidTargets,
		},
		{
			name: "elasticrun has counted", env: map[string]string{"CUDA_VISIBLE_DEVICES": "4,7", envGPUCount: "1"},
			options: GRPCOptions{DeviceMaps: own}, want: device.ErrInvalidTargets,
		},
		{
			name: "the program has counted", env: map[string]string{"CUDA_VISIBLE_DEVICES": "4"},
			options: GRPCOptions{DeviceMaps: own, DeviceCount: 2},
		},
		{name: "nvidia-smi is not asked without maps", env: map[string]string{"PATH": filepath.Dir(smi)}},
		{
			name: "nvidia-smi fails", env: map[string]string{"PATH": filepath.Dir(smi)}, options: GRPCOptions{DeviceMaps: own},
			text: "init RPC as w: count the GPUs for DeviceMaps and Devices: count GPUs with " + smi +
				": exit status 9 (no driver): repair it, set CUDA_VISIBLE_DEVICES or give the number of workers; " +
				"or set DeviceCount or ELASTICRUN_GPU_COUNT",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"PATH": t.TempDir()}
			maps.Copy(env, tt.env)
			g, err := Init(t.Context(), Config{
				Name: "w", Store: kvstore.NewHashStore(), WorldSize: 1, Options: &tt.options, Lookup: environ(env),
			})
			if err == nil {
				err = g.Close()
			}
			if tt.text != "" && errText(err) != tt.text || tt.text == "" && !errors.Is(err, tt.want) {
				t.Errorf("got %v\nwant %v%s", err, tt.want, tt.text)
			}
		})
	}
}
