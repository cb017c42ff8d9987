package liveness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// fileReader reads the files of one worker. Only one goroutine at a time may use it.
type fileReader struct {
	outputs []string
	beat    string
	last    heartbeat
}

// fileRead is what a fileReader has found.
type fileRead struct {
	output    int64 // size of all files
	heartbeat heartbeat
	problem   error // with the heartbeat file, as readHeartbeat returns it
}

func (r *fileReader) read() (f fileRead) {
	for _, path := range r.outputs {
		if info, err := os.Stat(path); err == nil {
			f.output += info.Size()
		}
	}
	if r.beat != "" {
		r.last, f.problem = readHeartbeat(r.beat, r.last)
		f.heartbeat = r.last
	}
	return f
}

// maxHeartbeat bounds the content of a heartbeat file that is read, in bytes.
const maxHeartbeat = 32

// readHeartbeat reads a heartbeat file if its time has changed since last. An empty file shows only that it was
// touched. After an error the file is ignored, or its content alone if the result has a time.
func readHeartbeat(path string, last heartbeat) (heartbeat, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return heartbeat{}, nil
	case err != nil:
		return heartbeat{}, err
	case !info.Mode().IsRegular():
		return heartbeat{}, fmt.Errorf("%s is no file, so it is ignored", path)
	}
	now := heartbeat{modified: info.ModTime().UnixNano()}
	if now.modified == last.modified || info.Size() == 0 {
		now.step = last.step
		return now, nil
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return heartbeat{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxHeartbeat))
	if err != nil {
		return now, fmt.Errorf("read %s: %w", path, err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" { // the worker has truncated it, and is about to write
		now.step = last.step
		return now, nil
	}
	step, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return now, fmt.Errorf("%s has %q: must be empty or a number; its time counts all the same", path, text)
	}
	now.step = optional{step, true}
	return now, nil
}
