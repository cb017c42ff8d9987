package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// maxErrorFile is the size of the largest error file that is used, in bytes.
const maxErrorFile = 1 << 20

// errorFile is the content of the error file that torch's @record writes (torch 2.14,
// torch/distributed/elastic/multiprocessing/errors/error_handler.py).
type errorFile struct {
	Message   string    // "<Type>: <text>"
	CallStack string    // Python's traceback; may be empty
	Timestamp time.Time // zero if the file has none
	Raw       string    // the file's content
	Written   time.Time // when the file was last written
}

// readErrorFile reads the error file at path. If there is none, it returns nil, and an error if a full disk may be the
// reason. An empty file is an error: its content could not be written.
func readErrorFile(path string) (*errorFile, error) {
	if path == "" {
		return nil, nil
	}
	// O_NONBLOCK: a FIFO at path must not block the agent.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, diskFull(filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("read error file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read error file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read error file %s: not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxErrorFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read error file: %w", err)
	case len(data) == 0:
		return nil, cmp.Or(diskFull(filepath.Dir(path)), fmt.Errorf("read error file: %s is empty", path))
	case len(data) > maxErrorFile:
		return nil, fmt.Errorf("read error file %s: larger than %d bytes, so it is not used", path, maxErrorFile)
	}
	out, err := parseErrorFile(data)
	if out != nil {
		out.Written = info.ModTime()
	}
	return out, err
}

// diskFull returns an error if the disk of the log folder dir is full. Then the worker's stderr and error file may be
// incomplete.
func diskFull(dir string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return nil // nothing is known
	}
	// Both totals are 0 if the file system does not count.
	if s.Blocks > 0 && s.Bavail == 0 || s.Files > 0 && s.Ffree == 0 {
		return fmt.Errorf("the disk of log folder %s is full: what the worker wrote last may be missing", dir)
	}
	return nil
}

// parseErrorFile parses both layouts that torch has written: message as an object with extraInfo, and message as a text
// beside a top-level timestamp.
func parseErrorFile(data []byte) (*errorFile, error) {
	var top struct {
		Message   json.RawMessage `json:"message"`
		Timestamp json.RawMessage `json:"timestamp"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("parse error file: %w", err)
	}
	out := &errorFile{Raw: string(data), Timestamp: parseTimestamp(top.Timestamp)}
	if json.Unmarshal(top.Message, &out.Message) == nil {
		return out, nil
	}
	var nested struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			CallStack string          `json:"py_callstack"`
			Timestamp json.RawMessage `json:"timestamp"`
		} `json:"extraInfo"`
	}
	if json.Unmarshal(top.Message, &nested) != nil { // the error would show a Go type
		return nil, errors.New("parse error file: message is neither a text nor an object with one")
	}
	out.Message, out.CallStack = nested.Message, nested.ExtraInfo.CallStack
	if t := parseTimestamp(nested.ExtraInfo.Timestamp); !t.IsZero() {
		out.Timestamp = t
	}
	return out, nil
}

// parseTimestamp parses Unix seconds, as a text or a number. It returns zero for anything else.
func parseTimestamp(raw json.RawMessage) time.Time {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	const lastSecond = 253402300799 // of the year 9999
	sec, err := strconv.ParseFloat(text, 64)
	if err != nil || !(sec > 0 && sec <= lastSecond) {
		return time.Time{}
	}
	whole := int64(sec)
	return time.Unix(whole, int64((sec-float64(whole))*1e9))
}

// happened returns when the error probably occurred; zero if the file does not say. The time in an error file has whole
// seconds. If the file was written within the next two, its modification time is more precise.
func (e *errorFile) happened() time.Time {
	if e.Timestamp.IsZero() {
		return e.Written
	}
	if late := e.Written.Sub(e.Timestamp); late >= 0 && late < 2*time.Second {
		return e.Written
	}
	return e.Timestamp
}
