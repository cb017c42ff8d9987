package nearest

import "testing"

func TestOf(t *testing.T) {
	for name, want := range map[string]string{
		"nprocpernode": "nproc-per-node", "rols": "role", "log_dir": "log-dir", "x": "", "": "", "completely-else": "",
	} {
		names := []string{"nproc-per-node", "role", "log-dir", "tee"}
		if got := Of(name, names); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
