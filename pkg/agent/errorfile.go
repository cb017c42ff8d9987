package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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

// readErrorFile reads the error file at path. It returns nil where there is none
// or it is empty.
func readErrorFile(path string) (*ErrorFile, error) {
	if path == "" {
		return nil, nil
	}
	// Not to be held up by a FIFO that somebody put there.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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
		return nil, nil
	case len(data) > maxErrorFile:
		return nil, fmt.Errorf("read error file %s: larger than %d bytes", path, maxErrorFile)
	}
	out, err := parseErrorFile(data)
	if out != nil {
		out.Written = info.ModTime()
	}
	return out, err
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

// parseTimestamp reads whole Unix seconds, as a text or a number.
func parseTimestamp(raw json.RawMessage) time.Time {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	sec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || sec <= 0 {
		return time.Time{}
	}
	return time.Unix(sec, 0)
}
