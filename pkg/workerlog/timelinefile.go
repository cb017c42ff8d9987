package workerlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Timeline writes the marks of one worker group, in one goroutine that Close waits for. It only helps to read logs:
// if it cannot be written, the job continues, and one warning says so. A nil Timeline writes nothing.
type Timeline struct {
	file *os.File // nil once it cannot be written
	warn func(error)

	marks chan Mark // from the streams that pass through the launcher
	files map[string]*watchedFile
	watch *fsnotify.Watcher // nil where no file is watched
	quit  chan struct{}
	done  chan struct{}
}

// watchedFile is a log that a worker writes itself.
//
// An event for every write would cost as much as the write. So a growing file is not watched but checked every
// checkInterval, until it stops growing. That bounds the cost, and a silent worker costs nothing.
type watchedFile struct {
	pace    pacer
	size    int64
	growing bool
}

// checkInterval is longer than idleGap by more than the resolution of a file's times.
const checkInterval = idleGap + 20*time.Millisecond

// OpenTimeline opens the timeline at path, which has its head already. It returns nil if there is none, or, after a
// warning, if it cannot be opened.
func OpenTimeline(path string, warn func(error)) *Timeline {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) { // CreateTimeline's caller has warned
		return nil
	}
	t := &Timeline{
		file: file, warn: warn,
		marks: make(chan Mark, 1024), files: make(map[string]*watchedFile),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	if err != nil {
		t.warnOnce(err)
		return nil
	}
	return t
}

// follow makes marks for a file that a worker writes itself. It is called before Start.
func (t *Timeline) follow(path string, localRank int, std StreamSet) {
	if t != nil {
		t.files[path] = &watchedFile{pace: pacer{localRank: localRank, std: std}}
	}
}

// Start begins to write.
func (t *Timeline) Start() {
	if t == nil {
		return
	}
	var err error
	if len(t.files) > 0 {
		t.watch, err = fsnotify.NewWatcher()
	}
	if err != nil {
		t.warnOnce(fmt.Errorf("watch the log files: %w", err))
		clear(t.files)
	}
	go t.run()
}

// put queues a mark. It never blocks: if the disk is too slow, the mark is lost.
func (t *Timeline) put(m Mark, due bool) {
	if t == nil || !due {
		return
	}
	select {
	case t.marks <- m:
	default:
	}
}

// Close writes the remaining marks and waits for the end of the goroutine that Start began. If a write hangs, Close
// waits no longer than ctx.
func (t *Timeline) Close(ctx context.Context) {
	if t == nil {
		return
	}
	close(t.quit)
	select {
	case <-t.done:
		return
	case <-ctx.Done():
	}
	select {
	case <-t.done:
	case <-time.After(giveUpStep):
	}
}

// Discard releases a timeline that was never started.
func (t *Timeline) Discard() {
	if t != nil && t.file != nil {
		_ = t.file.Close()
	}
}

func (t *Timeline) run() {
	defer close(t.done)
	defer t.Discard()
	var events chan fsnotify.Event
	var lost chan error
	if t.watch != nil {
		defer func() { _ = t.watch.Close() }()
		events, lost = t.watch.Events, t.watch.Errors
	}
	again := time.NewTicker(checkInterval)
	defer again.Stop()
	t.check(again, true)
	for {
		select {
		case m := <-t.marks:
			t.write(m)
		case e := <-events:
			if f := t.files[e.Name]; f != nil && e.Has(fsnotify.Write) {
				_ = t.watch.Remove(e.Name)
				t.grew(e.Name, f)
				f.growing = true
				again.Reset(checkInterval)
			}
		case err := <-lost:
			if err != nil { // events of unknown files were dropped
				t.check(again, true)
			}
		case <-again.C:
			t.check(again, false)
		case <-t.quit:
			t.end()
			return
		}
	}
}

// check checks the files that grow, or all files, and watches those that do not grow.
func (t *Timeline) check(again *time.Ticker, all bool) {
	growing := 0
	for path, f := range t.files {
		if !f.growing && !all {
			continue
		}
		if f.growing = t.grew(path, f); !f.growing {
			if err := t.watch.Add(path); err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					t.warnOnce(fmt.Errorf("watch a log file: %w", err))
				}
				delete(t.files, path)
				continue
			}
			if f.growing = t.grew(path, f); f.growing { // it grew before it was watched
				_ = t.watch.Remove(path)
			}
		}
		if f.growing {
			growing++
		}
	}
	again.Stop()
	if growing > 0 {
		again.Reset(checkInterval)
	}
}

// grew reports whether the file has more bytes than at the last check, and marks that.
func (t *Timeline) grew(path string, f *watchedFile) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= f.size {
		return false
	}
	at := info.ModTime()
	if at.Before(f.pace.last) {
		at = f.pace.last
	}
	// A file that grew at every check has not paused.
	paused := !f.growing && at.Sub(f.pace.last) >= idleGap
	if m, due := f.pace.step(at, f.size, paused); due {
		t.write(m)
	}
	f.size = info.Size()
	return true
}

// end writes the last marks.
func (t *Timeline) end() {
	for len(t.marks) > 0 {
		t.write(<-t.marks)
	}
	for path, f := range t.files {
		t.grew(path, f)
		if m, due := f.pace.end(f.size); due {
			t.write(m)
		}
	}
}

// write writes one mark. After a failed write it gives the timeline up.
func (t *Timeline) write(m Mark) {
	if t.file == nil {
		return
	}
	if _, err := t.file.Write(append(m.append(nil), '\n')); err != nil {
		_ = t.file.Close()
		t.file = nil
		t.warnOnce(err)
	}
}

func (t *Timeline) warnOnce(err error) {
	if t.warn != nil {
		t.warn(err)
		t.warn = nil
	}
}
