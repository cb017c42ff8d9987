package workerlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// FileWatch waits for the first bytes of files that other processes write. The kernel notifies it; it does not poll.
//
// It watches a folder only for new names, and a file only until it has bytes. A library would get an event for each
// write in the folder, and a worker that wrote its own log there took twice as long.
type FileWatch struct {
	inotify *os.File
	written chan string
	done    chan struct{}

	// Owned by run.
	folders map[int32]string // by watch
	files   map[int32]string // by watch; they exist and are empty
	waiting map[string]bool  // missing or empty
}

// WatchFiles begins to wait for the files at paths, whose folders must exist. It watches all of them or returns an
// error, for example when the user watches too many files. End the wait with [FileWatch.Close].
func WatchFiles(paths []string) (*FileWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch files: %w (the limit is in /proc/sys/fs/inotify)", err)
	}
	w := &FileWatch{
		inotify: os.NewFile(uintptr(fd), "inotify"), written: make(chan string, len(paths)), done: make(chan struct{}),
		folders: make(map[int32]string), files: make(map[int32]string), waiting: make(map[string]bool),
	}
	for _, path := range paths {
		w.waiting[path] = true
		folder := filepath.Dir(path)
		watch, err := unix.InotifyAddWatch(fd, folder, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
		if err != nil {
			_ = w.inotify.Close()
			return nil, fmt.Errorf("watch folder %s: %w (the limit is in /proc/sys/fs/inotify)", folder, err)
		}
		w.folders[int32(watch)] = folder
	}
	go w.run()
	return w, nil
}

// Written delivers the path of each file once, when the file first has bytes. The channel has room for all paths and
// is never closed.
func (w *FileWatch) Written() <-chan string { return w.written }

// Close ends the wait.
func (w *FileWatch) Close() {
	_ = w.inotify.Close()
	<-w.done
}

func (w *FileWatch) run() {
	defer close(w.done)
	w.checkAll() // files that existed before the watch began
	buf := make([]byte, 16<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		for events := buf[:n]; len(events) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			w.handle(watch, mask, strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00"))
			events = events[end:]
		}
	}
}

// handle handles one event. name is the file's name if the watch is a folder's.
func (w *FileWatch) handle(watch int32, mask uint32, name string) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0: // events were lost
		w.checkAll()
	case mask&unix.IN_IGNORED != 0: // the file is gone, or unwatch removed its watch
		delete(w.files, watch)
		delete(w.folders, watch)
	case w.files[watch] != "":
		if w.hasBytes(w.files[watch]) {
			w.unwatch(watch)
		}
	case w.folders[watch] != "":
		w.checkPath(filepath.Join(w.folders[watch], name))
	}
}

func (w *FileWatch) checkAll() {
	for path := range w.waiting {
		w.checkPath(path)
	}
}

// checkPath checks a path. If the file exists and is empty, it starts to watch the file for writes.
func (w *FileWatch) checkPath(path string) {
	if !w.waiting[path] || w.hasBytes(path) {
		return
	}
	var watch int
	err := w.withInotify(func(fd int) (err error) {
		watch, err = unix.InotifyAddWatch(fd, path, unix.IN_MODIFY)
		return err
	})
	if err != nil { // the file does not exist: the folder's watch reports it
		return
	}
	w.files[int32(watch)] = path
	if w.hasBytes(path) { // written before it was watched
		w.unwatch(int32(watch))
	}
}

func (w *FileWatch) unwatch(watch int32) {
	_ = w.withInotify(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(watch))
		return err
	})
}

// withInotify calls call with the descriptor. Close may close the descriptor at any other time, but not during call.
func (w *FileWatch) withInotify(call func(fd int) error) error {
	conn, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	return errors.Join(conn.Control(func(fd uintptr) { callErr = call(int(fd)) }), callErr)
}

// hasBytes reports whether the file at path has bytes, and delivers its path the first time.
func (w *FileWatch) hasBytes(path string) (written bool) {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return false
	}
	if w.waiting[path] {
		delete(w.waiting, path)
		w.written <- path
	}
	return true
}
