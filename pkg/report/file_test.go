package report

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entries lists what is in a folder.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("n", 255) // as long as a name may be
	if err := os.Symlink(long, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, long)
	if err := os.WriteFile(path, []byte("of another run, and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{long, "link"} {
		if err := CheckFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || len(data) == 0 {
			t.Errorf("the check left %q, %v", data, err)
		}
		if err := WriteFile(filepath.Join(dir, name), []byte(name)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != name {
			t.Errorf("%q, %v", data, err)
		}
	}
	if diff := cmp.Diff([]string{"link", long}, entries(t, dir)); diff != "" {
		t.Errorf("left in the folder (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644&^umask() {
		t.Errorf("%v, %v", info, err)
	}
	t.Chdir(dir)
	if err := WriteFile("relative", nil); err != nil {
		t.Error(err)
	}
}

// umask is what files of this process are not allowed.
func umask() os.FileMode {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return os.FileMode(mask)
}

func TestFileRefused(t *testing.T) {
	dir := t.TempDir()
	fifo, dangling, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "dangling"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := entries(t, dir)
	// Nothing in here may be what the machine needs: code that fails this test has replaced it.
	for _, tt := range []struct{ path, want string }{
		{fifo, "is not a regular file"},
		{dir, "is not a regular file"},
		{dangling, "no such file"},
		{filepath.Join(dir, "nowhere", "r.json"), "make a file in " + dir + "/nowhere/: no such file or directory"},
		{filepath.Join(file, "r.json"), "not a directory"},
	} {
		if err := CheckFile(tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("check %s: %v", tt.path, err)
		}
		if err := WriteFile(tt.path, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("write %s: %v", tt.path, err)
		}
	}
	if diff := cmp.Diff(before, entries(t, dir)); diff != "" {
		t.Errorf("left in the folder (-want +got):\n%s", diff)
	}
}
