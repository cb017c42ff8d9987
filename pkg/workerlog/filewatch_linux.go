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

// FileWatch waits for the first bytes of files that others write. The kernel tells of them; nothing is polled.
//
// It asks for less than a library would: a folder tells of new names only, and a file of its bytes only until there
// are some. With an event for each write in the folder, a worker that writes its own log there took twice as long.
type FileWatch struct {
	inotify *os.File
	written chan string
	done    chan struct{}

	// Owned by run.
	folders map[int32]string // by watch
	files   map[int32]string // by watch; they are there, and empty
	waiting map[string]bool  // not there yet, or empty
}

// WatchFiles begins to wait for the files at paths, whose folders must exist. An error, as the kernel gives one where
// a user watches too much, means that none is watched. End the wait with [FileWatch.Close].
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

// Written receives the path of each file once, when it is first seen with something in it. It holds them all without a
// reader and is never closed.
func (w *FileWatch) Written() <-chan string { return w.written }

// Close ends the wait.
func (w *FileWatch) Close() {
	_ = w.inotify.Close()
	<-w.done
}

func (w *FileWatch) run() {
	defer close(w.done)
	w.lookAtAll() // what was there before the watch began
	buf := make([]byte, 16<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		for events := buf[:n]; len(events) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			w.take(watch, mask, strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00"))
			events = events[end:]
		}
	}
}

// take acts on one event; name is that of the file, where the watch is a folder's.
func (w *FileWatch) take(watch int32, mask uint32, name string) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0: // events were lost
		w.lookAtAll()
	case mask&unix.IN_IGNORED != 0: // the file is gone, or was given up below
		delete(w.files, watch)
		delete(w.folders, watch)
	case w.files[watch] != "":
		if w.look(w.files[watch]) {
			w.unwatch(watch)
		}
	case w.folders[watch] != "":
		w.meet(filepath.Join(w.folders[watch], name))
	}
}

func (w *FileWatch) lookAtAll() {
	for path := range w.waiting {
		w.meet(path)
	}
}

// meet looks at a path, and has the kernel tell of what is written to it if it is there and empty.
func (w *FileWatch) meet(path string) {
	if !w.waiting[path] || w.look(path) {
		return
	}
	var watch int
	err := w.ask(func(fd int) (err error) {
		watch, err = unix.InotifyAddWatch(fd, path, unix.IN_MODIFY)
		return err
	})
	if err != nil { // it is not there: its folder will tell
		return
	}
	w.files[int32(watch)] = path
	if w.look(path) { // in between
		w.unwatch(int32(watch))
	}
}

func (w *FileWatch) unwatch(watch int32) {
	_ = w.ask(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(watch))
		return err
	})
}

// ask calls the kernel with the descriptor, which Close may close any time, but not meanwhile.
func (w *FileWatch) ask(call func(fd int) error) error {
	conn, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	return errors.Join(conn.Control(func(fd uintptr) { callErr = call(int(fd)) }), callErr)
}

// look tells of the file at path, once, if it has something in it.
func (w *FileWatch) look(path string) (written bool) {
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
