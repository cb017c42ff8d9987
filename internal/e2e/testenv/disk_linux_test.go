package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDisk(t *testing.T) {
	d := NewDisk(t, 8)
	file := filepath.Join(d.Path, "file")
	write := func() error { return os.WriteFile(file, make([]byte, 1<<16), 0o600) }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	d.Fill()
	if err := os.WriteFile(file+"2", make([]byte, 1<<16), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing to a full disk: %v", err)
	}
	d.Free()
	d.Freeze()
	done := make(chan error, 1)
	go func() { done <- write() }()
	select {
	case err := <-done:
		t.Errorf("writing to a frozen disk: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	d.Thaw()
	if err := <-done; err != nil {
		t.Errorf("writing to a disk that was thawed: %v", err)
	}
}
