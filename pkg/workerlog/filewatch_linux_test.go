package workerlog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// next returns the next file that was written.
func next(t *testing.T, w *FileWatch) string {
	t.Helper()
	select {
	case path := <-w.Written():
		return filepath.Base(path)
	case <-time.After(time.Minute):
		t.Fatal("no file was reported")
		return ""
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFiles(t *testing.T) {
	dir := t.TempDir()
	names := []string{"before", "later", "empty", "moved", "folder", "last"}
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	writeText(t, paths[0], "x")
	w, err := WatchFiles(paths)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if got := next(t, w); got != "before" {
		t.Errorf("first came %s", got)
	}
	writeText(t, filepath.Join(dir, "unwatched"), "x")
	writeText(t, paths[2], "") // created, but empty
	f, err := os.Create(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // half, and then more: it counts once
		if _, err := f.WriteString(`{"message":`); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "other name"), "x")
	if err := os.Rename(filepath.Join(dir, "other name"), paths[3]); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(paths[4], 0o700); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(paths[4], "x"), "x")
	got := []string{next(t, w), next(t, w)} // the first look may overtake the events
	slices.Sort(got)
	writeText(t, paths[5], "x")
	got = append(got, next(t, w))
	if diff := cmp.Diff([]string{"later", "moved", "last"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Close does not need a reader of Written, and only regular files count.
func TestWatchFilesUnread(t *testing.T) {
	dir := t.TempDir()
	a, b, fifo := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "fifo")
	writeText(t, a, "x")
	writeText(t, b, "x")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := WatchFiles([]string{a, fifo, b})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := WatchFiles([]string{filepath.Join(dir, "nowhere", "a")}); err == nil ||
		!strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a folder that is not there: %v", err)
	}
}
