package device

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// torchRules passes groups of workers to the functions of torch and prints their results. Newer versions look up the
// accelerator of the machine, which must be a GPU here too.
const torchRules = `
import json, sys, torch
from torch.distributed.rpc import backend_registry as rules
if hasattr(torch, "accelerator"):
    torch.accelerator.current_accelerator = lambda *args, **kwargs: torch.device("cuda")
read = torch.device

def judge(group):
    ws = group["Workers"]
    names = [w["Name"] for w in ws]
    counts = {w["Name"]: w["Count"] for w in ws}
    maps = {w["Name"]: {t: {read(s): read(d) for s, d in m.items()} for t, m in (w["Maps"] or {}).items()} for w in ws}
    devices = {w["Name"]: [read(d) for d in w["Devices"] or []] for w in ws}
    try:
        rules._validate_device_maps(names, counts, maps, devices, group["Static"])
    except ValueError as e:
        return {"Err": str(e).split("\n")[0]}
    result = {"Reverse": {}, "Lists": {}}
    for n in names:
        reverse = rules._create_reverse_mapping(n, names, maps)
        result["Reverse"][n] = {t: {str(s): str(d) for s, d in m.items()} for t, m in reverse.items()}
        try:
            result["Lists"][n] = [str(d) for d in rules._create_device_list(devices[n], maps[n], reverse)]
        except TypeError:
            result["Lists"][n] = None
    return result

json.dump([judge(g) for g in json.load(sys.stdin)], sys.stdout)
`

// torchGroup is a group of workers for torchRules.
type torchGroup struct {
	Workers []Worker
	Static  bool
}

// torchVerdict is the result for a group: the first line of an error, or the derived maps and lists by worker.
type torchVerdict struct {
	Err     string
	Reverse map[string]map[string]Map
	Lists   map[string][]Device
}

// torchTexts are the first lines of torch's errors, with the worker and the target.
var torchTexts = map[error]string{
	ErrDuplicateDevices:  "Node %s has duplicated devices",
	ErrInvalidDevices:    "Node %s has devices with invalid indices",
	ErrUnknownTarget:     "Node %s has invalid target node names in its device maps",
	ErrDuplicateTargets:  "Node %s has duplicated target devices in its device map for %s",
	ErrUnexpectedSources: "Node %s has unexpected source devices in its device map for %s",
	ErrInvalidSources:    "Node %s has source devices with invalid indices in its device map for %s",
	ErrUnexpectedTargets: "Node %s has unexpected target devices in its device map for %s",
	ErrInvalidTargets:    "Node %s has target devices with invalid indices in its device map for %s",
}

// verdict returns this package's verdict.
func (g torchGroup) verdict() torchVerdict {
	if e, refused := errors.AsType[*MapError](Validate(g.Workers, g.Static)); refused {
		text := torchTexts[e.Err]
		if strings.Count(text, "%s") == 1 {
			return torchVerdict{Err: fmt.Sprintf(text, e.Worker)}
		}
		return torchVerdict{Err: fmt.Sprintf(text, e.Worker, e.Target)}
	}
	v := torchVerdict{Reverse: map[string]map[string]Map{}, Lists: map[string][]Device{}}
	for _, w := range g.Workers {
		v.Reverse[w.Name] = Reverse(w.Name, g.Workers)
		v.Lists[w.Name] = append([]Device{}, List(w.Devices, w.Maps, v.Reverse[w.Name])...)
		if len(w.Devices) > 1 && slices.Contains(w.Devices, CPU()) {
			v.Lists[w.Name] = nil // torch fails here, because its cpu has no index to sort by
		}
	}
	return v
}

// TestWithTorch passes the same random groups to torch and to this package. The errors, their worker and target, the
// reverse maps and the device lists must agree. Three differences are intended. Torch cannot write a negative index. It
// treats cpu:0, cpu:1 and so on as devices besides its cpu. It fails if a worker declares the cpu among other devices.
// No group shows two of them.
func TestWithTorch(t *testing.T) {
	t.Parallel()
	// torch 1.13 has the original rules of torch/distributed/rpc/backend_registry.py.
	for _, version := range []string{"1.13", "2.14", testenv.Official} {
		if version != "1.13" && !testenv.Whole(t) { // 1.13 takes half the time to load
			continue
		}
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := testenv.Torch(t, version)
			var groups []torchGroup
			for i := range testenv.Repeat(t, 1000, 20000) {
				groups = append(groups, torchGroup{Workers: anyWorkers().Example(i), Static: i%2 == 0})
			}
			seen := make(map[string]int)
			for i, theirs := range askTorch(t, python, groups) {
				ours := groups[i].verdict()
				if diff := cmp.Diff(theirs, ours); diff != "" {
					t.Fatalf("%+v (-torch +this package):\n%s", groups[i], diff)
				}
				seen[kindOf(ours.Err)]++
			}
			for _, text := range torchTexts {
				if kind := kindOf(text); seen[kind] < 5 {
					t.Errorf("only %d groups have %q", seen[kind], kind)
				}
			}
			if seen[""] < 100 {
				t.Errorf("only %d groups were accepted", seen[""])
			}
		})
	}
}

// kindOf returns an error of torch without names.
func kindOf(text string) string {
	_, kind, _ := strings.Cut(text, " has ")
	kind, _, _ = strings.Cut(kind, " in its device map for ")
	return kind
}

func askTorch(t *testing.T, python string, groups []torchGroup) []torchVerdict {
	t.Helper()
	in, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", torchRules)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []torchVerdict
	if err := json.Unmarshal(out, &verdicts); err != nil {
		t.Fatal(err)
	}
	if len(verdicts) != len(groups) {
		t.Fatalf("%d verdicts for %d groups", len(verdicts), len(groups))
	}
	return verdicts
}
