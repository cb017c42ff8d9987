package hangs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

var table = flag.String("table", "", "append a Markdown table of what TestHangs sees to this file")

// torchJobs bounds the jobs with torch that run at once, because each needs a gigabyte and starts slowly.
var torchJobs = make(chan struct{}, 3)

// TestHangs lets one rank of a job hang, and checks what elasticrun says about it.
func TestHangs(t *testing.T) {
	t.Parallel()
	for _, script := range []string{plain, ddp} {
		for i, h := range hangs {
			if !h.chosen(t, script) {
				continue
			}
			t.Run(h.name+" "+script, func(t *testing.T) {
				t.Parallel()
				python := testenv.Python(t)
				if script == ddp {
					python = testenv.Torch(t, "2.14")
					torchJobs <- struct{}{}
					defer func() { <-torchJobs }()
				}
				h.run(t, python, script, i%world)
			})
		}
	}
}

// chosen reports whether a run of this length runs the hang with a script. make test has no torch, and short runs of
// make soak have it only in hangs that need it, and in a few others.
func (h hang) chosen(t *testing.T, script string) bool {
	t.Helper()
	if h.only != "" && h.only != script {
		return false
	}
	simplest := script == plain || h.only == ddp
	switch {
	case testenv.Long(t):
		return true
	case testenv.Whole(t):
		return simplest || h.quick || h.torch
	}
	return h.quick && simplest
}

// TestHangsOfVersions does the same with each Python on this machine, without torch.
func TestHangsOfVersions(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	pythons := testenv.Pythons(t)
	for _, version := range []string{"2.6", "2.14"} {
		pythons = append(pythons, testenv.Torch(t, version))
	}
	for _, python := range pythons {
		for i, h := range hangs {
			if h.only == ddp || !testenv.Long(t) && h.name != "lock_twice" {
				continue
			}
			t.Run(h.name+" "+strings.ReplaceAll(python, "/", "_"), func(t *testing.T) {
				t.Parallel()
				h.run(t, python, plain, i%world)
			})
		}
	}
}

// run runs a job that hangs.
func (h hang) run(t *testing.T, python, script string, odd int) {
	t.Helper()
	env, release := h.environment(t)
	env = append(env, "HANG="+h.name, fmt.Sprint("HANG_RANK=", odd))
	j := startJob(t, python, script, h.hangFlags(), env...)
	j.awaitBegun()
	ranks := j.look()
	if !h.everybody {
		checkOdd(t, h, odd, ranks)
	}
	verdict := h.checkVerdict(t, j, script, odd, release)
	record(t, h, script, odd, ranks, verdict)
}

// environment returns what the hang needs in the environment, and a function that releases processes which the kernel
// does not let end.
func (h hang) environment(t *testing.T) (env []string, release func()) {
	t.Helper()
	switch h.file {
	case hungFile:
		file := testenv.NewHang(t)
		return []string{"HANG_FILE=" + file.Path}, file.Release
	case frozenFile:
		disk := testenv.NewDisk(t, 8)
		disk.Freeze()
		return []string{"HANG_FILE=" + filepath.Join(disk.Path, "checkpoint")}, disk.Thaw
	}
	return nil, func() {}
}

// record appends a line for the odd rank and one for each kind of the others to the table.
func record(t *testing.T, h hang, script string, odd int, ranks map[int]sight, verdict string) {
	t.Helper()
	if *table == "" {
		return
	}
	var out strings.Builder
	row := func(ranks string, s sight) {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %.2f | %s | %d | %s |\n", h.name, script, ranks, s.State, s.Wait,
			s.syscall, s.cpu, s.innermost(4), len(s.Threads), verdict)
		verdict = "" // for the odd rank
	}
	if s, alive := ranks[odd]; alive {
		row(fmt.Sprint("**", odd, "**"), s)
	} else {
		row(fmt.Sprint("**", odd, "**"), sight{})
	}
	waiting := map[string][]int{}
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		if s := ranks[rank]; rank != odd {
			key := s.State + s.Wait + s.syscall + s.innermost(4)
			waiting[key] = append(waiting[key], rank)
		}
	}
	for _, group := range slices.SortedFunc(maps.Values(waiting), slices.Compare) {
		row(strings.Trim(fmt.Sprint(group), "[]"), ranks[group[0]])
	}
	f, err := os.OpenFile(*table, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(out.String()); err != nil {
		t.Fatal(err)
	}
}
