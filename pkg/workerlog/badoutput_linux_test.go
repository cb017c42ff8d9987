package workerlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A full disk loses log bytes, but does not affect the console or the job: the worker continues to write, and one
// warning reports the loss while the worker runs.
func TestStreamsOnFullDisk(t *testing.T) {
	testenv.Root(t)
	for name, rotation := range map[string]Rotation{"one file": {}, "rotated": {MaxSize: 16 << 10}} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
				t.Skip("mount a small disk:", err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(disk, 0); err != nil {
					t.Error(err)
				}
			})
			attempt := &Attempt{dir: disk}
			if err := attempt.CreateTimeline(TimelineHead{}); err != nil {
				t.Fatal(err)
			}
			var warnings atomic.Int32
			tl := OpenTimeline(filepath.Join(disk, TimelineName), func(error) { warnings.Add(1) })
			screen := newFile(t)
			s, err := OpenStream(Output{
				File: filepath.Join(disk, "log"), Rotation: rotation, Console: true, Warn: func(err error) {
					warnings.Add(1)
					if !errors.Is(err, syscall.ENOSPC) {
						t.Error("a warning of something else:", err)
					}
				},
			}, NewConsole(screen, screen), Stdout)
			if err != nil {
				t.Fatal(err)
			}
			s.WriteTimeline(tl, 0, Stdout)
			fd, err := syscall.Dup(int(s.ChildFile().Fd()))
			if err != nil {
				t.Fatal(err)
			}
			worker := os.NewFile(uintptr(fd), "worker")
			tl.Start()
			s.Start()
			text := strings.Repeat(strings.Repeat("x", 79)+"\n", 2000)
			write(t, worker, text)
			worker.Close()
			if err := s.Wait(t.Context()); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("Wait: %v, want that the disk is full", err)
			}
			tl.Close(t.Context())
			if readFile(t, screen.Name()) != text {
				t.Error("the console lacks output")
			}
			if n := warnings.Load(); n < 1 || n > 3 { // the log, its rotation, the timeline
				t.Errorf("%d warnings", n)
			}
		})
	}
}

// Output without line ends takes a limited amount of memory, wherever it goes.
func TestStreamWithoutLineEnds(t *testing.T) {
	dir := t.TempDir()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s, worker := startStream(t, Output{
		File: filepath.Join(dir, "log"), Rotation: Rotation{MaxSize: 8 << 20, MaxFiles: 2}, Console: true,
		Prefix: LinePrefix(
			"${time} ",
			PrefixVars{},
		), Filters: []string{"needle"}, FilteredFile: filepath.Join(dir, "filtered"),
	}, NewConsole(null, null), Stdout)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const size = 96 << 20
	if _, err := io.Copy(worker, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	finish(t, s, worker)
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 32<<20 {
		t.Errorf("%d MiB of output took %d MiB of memory", size>>20, grown>>20)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "log*"))
	if err != nil || len(kept) != 2 {
		t.Errorf("files %q (%v), want two", kept, err)
	}
	for _, name := range kept {
		if info, err := os.Stat(name); err != nil || info.Size() > 8<<20 {
			t.Errorf("%s: %d bytes (%v)", name, info.Size(), err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
