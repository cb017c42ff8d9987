package testenv

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Binary returns the path of the elasticrun binary, built from this checkout like a release: static, without cgo. The
// first test that needs it builds it into the user's cache folder, and later test processes find it there.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var binary = sync.OnceValues(func() (string, error) { return Build("cmd/elasticrun") })

// Build builds a command of this module, such as cmd/elasticrun, into the user's cache folder, and returns the path of
// the program. Each checkout has its own programs. Build links again only if go says that something changed.
func Build(command string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	checkout := fnv.New64a()
	_, _ = checkout.Write([]byte(root))
	path := filepath.Join(cache(), "test", fmt.Sprintf("%x", checkout.Sum64()), filepath.Base(command))
	if err := build(root, "./"+command, path); err != nil {
		return "", err
	}
	return path, readFolders(root)
}

// readFolders lists the folders of the sources. go's test cache sees only which files and folders of the module the
// test process itself opens; without this, a test would not run again after a change of the program that it starts.
func readFolders(root string) error {
	for _, top := range []string{"go.mod", "cmd", "examples", "internal", "pkg", "testdata"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return fmt.Errorf("list the folders of the sources: %w", err)
		}
	}
	return nil
}

// moduleRoot returns the root folder of this module.
var moduleRoot = sync.OnceValues(func() (string, error) {
	gomod, err := exec.CommandContext(context.Background(), "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(gomod))), nil
})

// build builds a package of the module in dir as a static program at path. Processes that build the same program take
// turns. The rename replaces the whole file at once, because other processes may run the program.
func build(dir, pkg, path string) error {
	failed := func(err error) error { return fmt.Errorf("build %s: %w", pkg, err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return failed(err)
	}
	turn, err := os.Create(path + ".lock")
	if err != nil {
		return failed(err)
	}
	defer turn.Close()
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return failed(err)
	}
	// go does not link again what is up to date at the path of its output.
	next := path + ".next"
	program, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(next, program, 0o755)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-o", next, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	if err := os.Rename(next, path); err != nil {
		return failed(err)
	}
	return nil
}
