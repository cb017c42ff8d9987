package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// disk is a file whose writes fail for a while, after part of a line.
type disk struct {
	strings.Builder
	full   map[int]int // number of the write: how many bytes of it are taken
	writes int
	hang   chan struct{} // nil: it does not
}

func (d *disk) Write(p []byte) (int, error) {
	if d.hang != nil {
		<-d.hang
	}
	n, full := d.full[d.writes]
	d.writes++
	if !full {
		n = len(p)
	}
	d.Builder.Write(p[:n])
	if full {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (d *disk) Close() error { return nil }

func seqs(t *testing.T, text string) (got []int64) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var r Event
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			got = append(got, -1)
			continue
		}
		got = append(got, r.Seq)
	}
	return got
}

func TestFileLogFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{full: map[int]int{1: 20, 2: 0, 3: 1, 5: 0}}
		var warned []error
		l := newFileLog(d, func(err error) { warned = append(warned, err) })
		for range 8 {
			l.Emit(Event{Kind: KindWaiting})
			synctest.Wait()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]int64{0, -1, 4, 6, 7}, seqs(t, d.String())); diff != "" {
			t.Errorf("lines (-want +got):\n%s\n%s", diff, d.String())
		}
		if len(warned) != 1 || !errors.Is(warned[0], syscall.ENOSPC) {
			t.Errorf("warned %v", warned)
		}
	})
}

func TestFileLogHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{hang: make(chan struct{})}
		l := newFileLog(d, func(error) {})
		begun := time.Now()
		for range 3 * fileQueue {
			l.Emit(Event{})
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("Emit took %v", took)
		}
		if err := l.Close(); err == nil || time.Since(begun) != closeTimeout {
			t.Errorf("Close: %v after %v", err, time.Since(begun))
		}
		l.Emit(Event{}) // and nothing happens
		close(d.hang)
	})
}

func TestOpenFileLog(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link:                               "a symbolic link, which is not followed: name the file itself",
		dir:                                "open it for writing: is a directory",
		filepath.Join(dir, "none", "file"): "open it for writing: no such file or directory",
		fifo:                               "a pipe that nobody reads",
	} {
		if _, err := OpenFileLog(path, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	path := filepath.Join(dir, "log")
	for range 2 { // it goes on with a file that is there
		l, err := OpenFileLog(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Emit(Event{Kind: KindEnd})
		l.Emit(Event{Kind: KindEnd})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{0, 1, 0, 1}, seqs(t, string(text))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
