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

// Timeline writes the marks of one worker group, in one goroutine that close waits
// for. It is a help for reading logs: whatever it lacks, the job goes on, and one
// warning says so. Nil is a timeline that writes nothing.
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
// An event for every write would cost as much as the writing. So while a file grows
// it is not watched but looked at every lookEvery, and once it rests it is watched
// again: the cost has a bound, and a worker that is silent costs nothing.
type watchedFile struct {
	pace  pacer
	size  int64
	grows bool
}

// lookEvery is longer than silence by more than the grain of a file's times.
const lookEvery = silence + 20*time.Millisecond

// OpenTimeline opens the timeline at path, which has its head already. It returns
// nil where there is none, or, after a warning, where it cannot be opened.
func OpenTimeline(path string, warn func(error)) *Timeline {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) { // its maker has warned
		return nil
	}
	t := &Timeline{
		file: file, warn: warn,
		marks: make(chan Mark, 1024), files: make(map[string]*watchedFile),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	if err != nil {
		t.complain(err)
		return nil
	}
	return t
}

// follow makes marks for a file that a worker writes itself. It is called before start.
func (t *Timeline) follow(path string, localRank int, std Std) {
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
		t.complain(fmt.Errorf("watch the log files: %w", err))
		clear(t.files)
	}
	go t.run()
}

// put hands a mark over. It never waits: where the disk is that slow a mark is lost.
func (t *Timeline) put(m Mark, due bool) {
	if t == nil || !due {
		return
	}
	select {
	case t.marks <- m:
	default:
	}
}

// Close writes what is left and waits for the end of the goroutine that start began;
// where the disk does not take a write, no longer than ctx lasts.
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
	case <-time.After(letGo):
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
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	t.look(again, true)
	for {
		select {
		case m := <-t.marks:
			t.write(m)
		case e := <-events:
			if f := t.files[e.Name]; f != nil && e.Has(fsnotify.Write) {
				_ = t.watch.Remove(e.Name)
				t.grew(e.Name, f)
				f.grows = true
				again.Reset(lookEvery)
			}
		case err := <-lost:
			if err != nil { // events were dropped, of whatever file
				t.look(again, true)
			}
		case <-again.C:
			t.look(again, false)
		case <-t.quit:
			t.end()
			return
		}
	}
}

// look looks at the files that grow, or at all of them, and watches those that rest.
func (t *Timeline) look(again *time.Ticker, all bool) {
	growing := 0
	for path, f := range t.files {
		if !f.grows && !all {
			continue
		}
		if f.grows = t.grew(path, f); !f.grows {
			if err := t.watch.Add(path); err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					t.complain(fmt.Errorf("watch a log file: %w", err))
				}
				delete(t.files, path)
				continue
			}
			if f.grows = t.grew(path, f); f.grows { // in between
				_ = t.watch.Remove(path)
			}
		}
		if f.grows {
			growing++
		}
	}
	again.Stop()
	if growing > 0 {
		again.Reset(lookEvery)
	}
}

// grew reports whether the file has more bytes than when it was last looked at, and
// marks that.
func (t *Timeline) grew(path string, f *watchedFile) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() <= f.size {
		return false
	}
	at := info.ModTime()
	if at.Before(f.pace.last) {
		at = f.pace.last
	}
	// From look to look a file that grows is not seen to pause.
	paused := !f.grows && at.Sub(f.pace.last) >= silence
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

// write writes one mark. A file that cannot be written is given up.
func (t *Timeline) write(m Mark) {
	if t.file == nil {
		return
	}
	if _, err := t.file.Write(append(m.append(nil), '\n')); err != nil {
		_ = t.file.Close()
		t.file = nil
		t.complain(err)
	}
}

func (t *Timeline) complain(err error) {
	if t.warn != nil {
		t.warn(err)
		t.warn = nil
	}
}
