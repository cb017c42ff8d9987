package telemetry

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOrderDump checks that a pipe with a reader gets an order, and that nothing else is written to or waited for.
func TestOrderDump(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "trace_0.pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := orderDump(pipe); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("a pipe without a reader: %v", err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if err := orderDump(pipe); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 8)
	if n, err := reader.Read(buf); err != nil || string(buf[:n]) != "1\n" {
		t.Errorf("the reader has %q, %v", buf[:n], err)
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, dir, filepath.Join(dir, "missing")} {
		if err := orderDump(path); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	if got, _ := os.ReadFile(file); string(got) != "keep" {
		t.Errorf("a file that is no pipe has %q", got)
	}
}
