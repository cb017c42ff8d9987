package testenv

import (
	"context"
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

// Missing ends a test that lacks something of its environment: it skips the test,
// or fails it when ELASTICRUN_REQUIRE_ALL is 1. The message names what is missing
// and how to get it.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("ELASTICRUN_REQUIRE_ALL") == "1" {
		t.Fatalf("ELASTICRUN_REQUIRE_ALL=1, but: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Root lets a test go on only as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		Missing(t, "needs root, and runs as uid %d", os.Getuid())
	}
}

// Torch returns the path of a python that imports the given torch: "1.13" (Debian
// 12's own), "2.14" or "2.6" (roots made by scripts/torch-root.sh). Workers started
// with it run on real torch; it is good as PYTHON_EXEC.
func Torch(t testing.TB, version string) string {
	t.Helper()
	find, ok := torches[version]
	if !ok {
		t.Fatalf("testenv knows no torch %q", version)
	}
	python, err := find()
	if err != nil {
		Missing(t, "needs torch %s: %v", version, err)
	}
	return python
}

// torches finds, once a process, the interpreter of each torch.
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
}

// checkTorch returns python if it imports the wanted torch; how says what would make it so.
func checkTorch(version, python, how string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", "import torch; print(torch.__version__)")
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1] // of a traceback: what went wrong
	switch {
	case err != nil:
		return "", fmt.Errorf("run %s: %w: %s (%s)", python, err, last, how)
	case last != version && !strings.HasPrefix(last, version+"."):
		return "", fmt.Errorf("%s has torch %s (%s)", python, last, how)
	}
	return python, nil
}

// cache is the folder that scripts/torch-root.sh fills too.
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

// Repeat scales a test whose worth grows with its length: it returns quick, or,
// under make soak, full times the scale in ELASTICRUN_SOAK (1 is the whole length,
// 0.1 a tenth), and at least quick.
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

// Whole reports whether a test with a matrix of cases is to run all of it: under make soak, as soon as ELASTICRUN_SOAK is set, whatever the
// scale. In make test such a test runs a part, chosen so that each value of each dimension occurs in it, and each pair of values of those
// dimensions that may depend on each other. Which part that is does not change from run to run.
func Whole(t testing.TB) bool {
	t.Helper()
	return Repeat(t, 0, 1) > 0
}
