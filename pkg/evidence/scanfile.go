package evidence

import (
	"bytes"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

const (
	// fileEnd is how much of the end of a file is read, in bytes.
	fileEnd = 1 << 20
	// fileLast is how much of its end counts as written by the last write. The time of the rest is unknown.
	fileLast = 16 << 10
)

// ScanFile returns the evidence at the end of a file to which a worker wrote its stderr itself. It returns nothing if
// the file cannot be read.
func ScanFile(name string) []failure.Finding {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	skip := max(0, info.Size()-fileEnd)
	data, err := io.ReadAll(io.NewSectionReader(f, skip, fileEnd))
	if err != nil {
		return nil
	}
	if skip > 0 { // the data begins within a line
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	last := max(0, len(data)-fileLast)
	last = bytes.LastIndexByte(data[:last], '\n') + 1
	var s Scanner
	s.Scan(data[:last], time.Time{})
	s.Scan(data[last:], info.ModTime())
	return s.Findings()
}
