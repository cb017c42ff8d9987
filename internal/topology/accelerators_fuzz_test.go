package topology

import (
	"errors"
	"testing"
)

// FuzzAccelerators reads machines and variables with arbitrary content. There are never more GPUs than the machine has
// tiles, no two have one name, and every error is that of a variable.
func FuzzAccelerators(f *testing.F) {
	f.Add(true, "0,GPU-abc", "1,0", "0.1,1", "level_zero:0;!*:gpu", "COMPOSITE", "simd_count 4\ndrm_render_minor 128\n")
	f.Add(false, "-1", "GPU-", "x", "opencl:*.*", "", "DRIVER=i915\nPCI_ID=8086:0BD5\nPCI_SLOT_NAME=0000:01:00.0\n")
	f.Fuzz(func(t *testing.T, amd bool, rocr, hip, mask, selector, hierarchy, content string) {
		machine, kind, changed := eightInstincts(), CUDAGPU, kfdNodes+"/2/properties"
		if !amd {
			machine = drmMachine(drmDevice{"xe", "8086:0BD5", "0000:29:00.0", 2}, drmDevice{"xe", "8086:7D55", "0000:00:02.0", 1})
			kind, changed = XPU, "sys/class/drm/renderD128/device/uevent"
		}
		got, err := GPUs(t.Context(), GPUOptions{
			Kind: kind, Root: with(machine, changed, content), Env: environment(map[string]string{
				"ROCR_VISIBLE_DEVICES": rocr, "HIP_VISIBLE_DEVICES": hip, affinityEnv: mask, selectorEnv: selector,
				hierarchyEnv: hierarchy,
			}),
		})
		if bad := (*VariableError)(nil); err != nil && !errors.As(err, &bad) {
			t.Errorf("%v", err)
		}
		if len(got) > 8 {
			t.Errorf("%d GPUs", len(got))
		}
		seen := map[string]bool{}
		for _, g := range got {
			if seen[g.ID] {
				t.Errorf("two GPUs %s", g.ID)
			}
			seen[g.ID] = true
		}
	})
}
