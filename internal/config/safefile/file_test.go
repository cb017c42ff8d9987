package safefile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestFIFO checks that a FIFO's writer gets the timeout, and no more.
func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) (*File, string) {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f, path
	}
	t.Run("written", func(t *testing.T) {
		f, path := open("written")
		wrote := make(chan error)
		go func() { wrote <- os.WriteFile(path, []byte("role: a"), 0) }()
		data, err := f.ReadAll(100, time.Minute)
		if string(data) != "role: a" || err != nil {
			t.Errorf("got %q, %v", data, err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
	t.Run("no writer", func(t *testing.T) {
		f, _ := open("silent")
		_, err := f.ReadAll(100, time.Millisecond)
		if err == nil || err.Error() != "no process wrote to the FIFO for 1ms" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no end", func(t *testing.T) {
		f, path := open("endless")
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
		if _, err := w.WriteString("role: a"); err != nil {
			t.Fatal(err)
		}
		_, err = f.ReadAll(100, 10*time.Millisecond)
		if err == nil || err.Error() != "the writer of the FIFO did not close it within 10ms" {
			t.Errorf("got %v", err)
		}
	})
}
