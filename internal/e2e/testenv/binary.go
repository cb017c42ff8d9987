package testenv

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Binary returns the path of the elasticrun binary, built from this checkout like a release: static, without cgo. Each
// test process builds it once, into the user's cache folder.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var binary = sync.OnceValues(func() (string, error) {
	// Test processes of several packages and checkouts run at the same time. So each package has a folder of its own.
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("build elasticrun: %w", err)
	}
	folder := fnv.New64a()
	_, _ = folder.Write([]byte(wd))
	path := filepath.Join(cache(), "test", fmt.Sprintf("%x", folder.Sum64()), "elasticrun")
	return path, build("", "github.com/elasticrun/elasticrun/cmd/elasticrun", path)
})

// build builds a package of the module in dir ("" is this module) as a static program at path. The rename replaces the
// whole file at once, because other processes may build or run the same program.
func build(dir, pkg, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	own := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", own, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	if err := os.Rename(own, path); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}
