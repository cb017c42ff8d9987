package testenv

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Missing ends a test whose environment lacks something: it skips the test, or fails it if ELASTICRUN_REQUIRE_ALL is 1.
// The message names what is missing and how to get it.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("ELASTICRUN_REQUIRE_ALL") == "1" {
		t.Fatalf("ELASTICRUN_REQUIRE_ALL=1, but: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Programs returns an error that names a missing program and the Debian package that has it, or nil. packages maps each
// program to its package.
func Programs(packages map[string]string) error {
	for program, debian := range packages {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w (apt-get install %s)", err, debian)
		}
	}
	return nil
}

// Root skips the test unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		Missing(t, "needs root, and runs as uid %d", os.Getuid())
	}
}

// Official is the version under which [Torch] finds the newest official build of torch. Unlike Debian's builds it has
// libuv, which torch uses unless USE_LIBUV=0.
const Official = "official"

// withoutOfficial is a variable that the pipeline sets to 1 where it does without the official build of torch.
const withoutOfficial = "ELASTICRUN_WITHOUT_OFFICIAL"

// Torch returns the path of a Python interpreter that has the given version of torch: "1.13" (Debian 12's own), "2.14"
// or "2.6" (roots made by scripts/torch-root.sh), or [Official] (made by scripts/torch-official.sh). The path is a
// valid PYTHON_EXEC. make test needs no official build: only the whole matrix of a test has it.
func Torch(t testing.TB, version string) string {
	t.Helper()
	find, ok := torches[version]
	if !ok {
		t.Fatalf("testenv knows no torch %q", version)
	}
	python, err := find()
	if err != nil {
		missingTorch(t, version, err)
	}
	return python
}

// missingTorch ends a test that needs a torch which cannot run because of err.
func missingTorch(t testing.TB, version string, err error) {
	t.Helper()
	if version == Official && os.Getenv(withoutOfficial) == "1" {
		t.Skipf("needs torch %s, and %s=1: %v", version, withoutOfficial, err)
	}
	Missing(t, "needs torch %s: %v", version, err)
}

// torches finds the interpreter of each torch, once in a process.
var torches = map[string]func() (string, error){
	"1.13": sync.OnceValues(func() (string, error) {
		return checkTorch("1.13", "/usr/bin/python3", "apt-get install python3-torch on Debian 12")
	}),
	"2.6": sync.OnceValues(func() (string, error) {
		return checkTorch("2.6", filepath.Join(cache(), "bin", "python-2.6"), "scripts/torch-root.sh trixie")
	}),
	"2.14": sync.OnceValues(func() (string, error) {
		return checkTorch("2.14", filepath.Join(cache(), "bin", "python-2.14"), "scripts/torch-root.sh forky")
	}),
	Official: sync.OnceValues(func() (string, error) {
		return checkTorch("2", filepath.Join(cache(), "bin", "python-official"), "scripts/torch-official.sh")
	}),
}

// torchVersion is a Python program that prints the version of torch. It does not import torch, which takes seconds.
const torchVersion = `import os, runpy, importlib.util
torch = importlib.util.find_spec("torch") or exit("no module named torch")
print(runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py"))["__version__"])`

// checkTorch returns python if its version of torch is that version or begins with it. Its errors contain how, the
// command that installs it.
func checkTorch(version, python, how string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", torchVersion)
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1] // the last line of a traceback names the error
	switch {
	case err != nil:
		return "", fmt.Errorf("run %s: %w: %s (%s)", python, err, last, how)
	case last != version && !strings.HasPrefix(last, version+"."):
		return "", fmt.Errorf("%s has torch %s (%s)", python, last, how)
	}
	return python, nil
}

// cache returns the folder that scripts/torch-root.sh fills too.
func cache() string {
	if dir := os.Getenv("ELASTICRUN_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil { // no HOME
		dir = filepath.Join(os.TempDir(), "cache-"+strconv.Itoa(os.Getuid()))
	}
	return filepath.Join(dir, "elasticrun")
}

// Parallel makes n tests of a package run at once, unless -parallel sets another number. TestMain calls it where most
// tests wait most of the time.
func Parallel(n int) {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set(strconv.Itoa(n)) // a number
	}
}

// Repeat returns the length of a test that gains from length: quick, or, under make soak, full times the scale in
// ELASTICRUN_SOAK (1 is the whole length, 0.1 a tenth), but at least quick.
func Repeat(t testing.TB, quick, full int) int {
	t.Helper()
	soak := os.Getenv("ELASTICRUN_SOAK")
	if soak == "" {
		return quick
	}
	scale, err := strconv.ParseFloat(soak, 64)
	if err != nil || !(scale > 0) || math.IsInf(scale, 0) {
		t.Fatalf("ELASTICRUN_SOAK=%q: want a positive number", soak)
	}
	return max(quick, int(math.Ceil(scale*float64(full))))
}

// Whole reports whether a test runs its whole matrix of cases: it does if ELASTICRUN_SOAK is set, whatever the scale.
// Otherwise the test runs a fixed part of the matrix, which it chooses itself.
func Whole(t testing.TB) bool {
	t.Helper()
	return Repeat(t, 0, 1) > 0
}

// InSoak skips a test that only make soak runs.
func InSoak(t testing.TB) {
	t.Helper()
	if !Whole(t) {
		t.Skip("make soak runs it")
	}
}

// Long reports whether each case of a test's matrix has real torch, and each version of it: it does if ELASTICRUN_SOAK
// is at least 0.1. A shorter run of make soak has the whole matrix too, but of several cases that are the same to torch
// only one has real torch.
func Long(t testing.TB) bool {
	t.Helper()
	const perUnit = 1000
	return Repeat(t, 0, perUnit) >= perUnit/10
}
