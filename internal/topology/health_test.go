package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHealth checks the output of several kinds of nvidia-smi.
func TestHealth(t *testing.T) {
	const remapped = `*remapped-rows*) echo "GPU-b, Yes, No"; echo "GPU-a, 0, 1";;`
	for _, tc := range []struct {
		name, script string
		want         []GPUHealth
		err          bool
	}{
		{
			name: "well and ill",
			script: `case "$*" in ` + remapped + `
*clocks_event_reasons*) echo "0, GPU-a, NVIDIA H100, 45, 0, [N/A], Not Active, Not Active, Not Active"
	echo "1, GPU-b, NVIDIA H100, 91, 3, [N/A], Active, Not Active, Active";; esac`,
			want: []GPUHealth{
				{Index: "0", UUID: "GPU-a", Name: "NVIDIA H100", Temperature: 45, RemapFailed: true},
				{
					Index: "1", UUID: "GPU-b", Name: "NVIDIA H100", Temperature: 91, UncorrectedErrors: 3, ResetPending: true,
					Slowdowns: []string{"the hardware is too hot", "it is too hot"},
				},
			},
		},
		{
			name: "an old driver and an old GPU",
			script: `case "$*" in
*clocks_event_reasons*) echo 'Field "clocks_event_reasons.hw_thermal_slowdown" is not a valid field to query.'; exit 2;;
*clocks_throttle_reasons*) echo "0, GPU-a, Tesla P100, 30, [N/A], Yes, Not Active, Not Active, Not Active";;
*) echo "unknown option"; exit 2;; esac`,
			want: []GPUHealth{{Index: "0", UUID: "GPU-a", Name: "Tesla P100", Temperature: 30, ResetPending: true}},
		},
		{
			name: "lost", script: `case "$*" in *query-gpu*) echo "0, GPU-a, H100, [Unknown Error], [N/A], [N/A], Not Active, Not Active, Not Active";; esac`,
			want: []GPUHealth{{Index: "0", UUID: "GPU-a", Name: "H100", Temperature: -1, Broken: `nvidia-smi says "[Unknown Error]" of it`}},
		},
		{name: "none", script: "echo No devices were found; exit 6"},
		{name: "broken driver", script: "echo it cannot talk to the driver; exit 9", err: true},
		{name: "other words", script: "echo hello", err: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := fakeSMI(t, tc.script)
			env := func(name string) (string, bool) { return dir + ":/bin:/usr/bin", name == "PATH" }
			got, err := Health(t.Context(), GPUOptions{Env: env})
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.err {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	if got, err := Health(t.Context(), GPUOptions{Env: func(string) (string, bool) { return "/nowhere", true }}); got != nil ||
		err != nil {
		t.Errorf("without nvidia-smi: %v, %v", got, err)
	}
}
