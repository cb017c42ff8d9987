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

// maxErrorFile bounds what is read of a worker's error file, in bytes.
const maxErrorFile = 1 << 20

// ErrorFile is the content of the error.json that torch's @record writes.
type ErrorFile struct {
	Message   string    // "<Type>: <text>"
	CallStack string    // Python's traceback; may be empty
	Timestamp time.Time // zero where the file has none
	Raw       string    // the file itself
	Written   time.Time // when the file was last written
}

// readErrorFile reads the error file at path. It returns nil where there is none, unless a full disk may
// be why. An empty one is an error: something was to be written, and could not be.
func readErrorFile(path string) (*ErrorFile, error) {
	if path == "" {
		return nil, nil
	}
	// Not to be held up by a FIFO that somebody put there.
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

// diskFull returns an error if nothing more can be written to the log folder dir: the worker's stderr and error file, the
// evidence against it, may then be incomplete.
func diskFull(dir string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return nil // then nothing is known
	}
	// Both counts are 0 where the file system does not count at all.
	if s.Blocks > 0 && s.Bavail == 0 || s.Files > 0 && s.Ffree == 0 {
		return fmt.Errorf("the disk of log folder %s is full: what the worker wrote last may be missing", dir)
	}
	return nil
}

// parseErrorFile reads both layouts that torch has written: message as an object
// with extraInfo, and message as a text beside a top-level timestamp.
func parseErrorFile(data []byte) (*ErrorFile, error) {
	var top struct {
		Message   json.RawMessage `json:"message"`
		Timestamp json.RawMessage `json:"timestamp"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("parse error file: %w", err)
	}
	out := &ErrorFile{Raw: string(data), Timestamp: parseTimestamp(top.Timestamp)}
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
	if err := json.Unmarshal(top.Message, &nested); err != nil {
		return nil, fmt.Errorf("parse error file: message is neither a text nor an object: %w", err)
	}
	out.Message, out.CallStack = nested.Message, nested.ExtraInfo.CallStack
	if t := parseTimestamp(nested.ExtraInfo.Timestamp); !t.IsZero() {
		out.Timestamp = t
	}
	return out, nil
}

// parseTimestamp reads Unix seconds, as a text or a number. What cannot be a time is none.
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
