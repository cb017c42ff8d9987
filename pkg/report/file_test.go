package report

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entries lists the files in a folder.
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
	path := filepath.Join(dir, long)
	if err := os.WriteFile(path, []byte("of another run, and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o664); err != nil { // whatever the umask
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{long: 0o664, "other": 0o400, "new": 0o600} {
		path := filepath.Join(dir, name)
		if err := CheckFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); name == long && (err != nil || len(data) == 0) {
			t.Errorf("the check left %q, %v", data, err)
		}
		if err := WriteFile(filepath.Join(dir, name), []byte(name)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != name {
			t.Errorf("%q, %v", data, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if diff := cmp.Diff([]string{"new", long, "other"}, entries(t, dir)); diff != "" {
		t.Errorf("left in the folder (-want +got):\n%s", diff)
	}
	t.Chdir(dir)
	if err := WriteFile("relative", nil); err != nil {
		t.Error(err)
	}
}

func TestFileRefused(t *testing.T) {
	dir := t.TempDir()
	fifo, dangling, link, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "dangling"), filepath.Join(dir, "link"),
		filepath.Join(dir, "file")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := entries(t, dir)
	// Do not use files that the machine needs: code that fails this test has replaced them.
	for _, tt := range []struct{ path, want string }{
		{fifo, "is not a regular file"},
		{dir, "is not a regular file"},
		{dangling, dangling + " is a symbolic link, which is not followed"},
		{link, link + " is a symbolic link, which is not followed"},
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
