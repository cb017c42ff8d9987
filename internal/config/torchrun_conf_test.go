package config

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// torchrunConf is a Python program that prints the keys of --rdzv-conf that torch's c10d backend reads. It reads them
// from torch's sources, because no list of them exists.
const torchrunConf = `
import importlib.util, os, re
folder = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "distributed/elastic/rendezvous")
for file in "dynamic_rendezvous.py", "c10d_rendezvous_backend.py":
    text = open(os.path.join(folder, file)).read()
    for key in re.findall(r'params\.(?:get|get_as_int|get_as_bool)\(\s*"(\w+)"', text): print(key)
    for key in re.findall(r'_get_timeout\(\s*params,\s*"(\w+)"', text): print(key + "_timeout")
`

// TestConfOfTorchrun checks that the newest torchrun has no option of --rdzv-conf that is unknown here.
func TestConfOfTorchrun(t *testing.T) {
	for _, version := range []string{"2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			if version == testenv.Official && !testenv.Whole(t) {
				t.Skip("make soak compares the official build")
			}
			out, err := exec.CommandContext(t.Context(), testenv.Torch(t, version), "-c", torchrunConf).CombinedOutput()
			keys := strings.Fields(string(out))
			if err != nil || !slices.Contains(keys, "join_timeout") || !slices.Contains(keys, "store_type") {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, key := range keys {
				_, err := resolveArgs(nil, "--rdzv-backend=c10d", "--rdzv-conf="+key+"=1", "s.py")
				if err != nil && strings.Contains(err.Error(), "unknown option") {
					t.Errorf("torchrun reads %s: %v", key, err)
				}
			}
		})
	}
}
