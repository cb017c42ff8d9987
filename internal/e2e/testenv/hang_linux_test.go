package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A reader outlives SIGKILL, and ends when the file is released.
func TestHang(t *testing.T) {
	h := NewHang(t)
	mark := Mark()
	cmd := exec.Command("cat", h.Path)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait()
	}()
	select {
	case <-h.Reading:
	case <-time.After(20 * time.Second):
		t.Error("nobody reads the file")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	select {
	case <-gone:
		t.Error("SIGKILL ended the reader")
	case <-time.After(200 * time.Millisecond):
	}
	h.Release()
	<-gone
	NothingLeft(t, mark)
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(" - fuse hang")) {
		t.Errorf("the machine has the mount: %s (%v)", mounts, err)
	}
}
