package workerlog

import (
	"bytes"
	"fmt"
	"os"
)

// lineFilter copies the lines of one stream that contain one of its needles to a file that several streams share.
// Unlike on the console, every line is checked and written whole, and ends with "\n". The file is opened for
// appending and each write holds whole lines, so the kernel's lock on the file keeps lines of different streams
// apart.
type lineFilter struct {
	file    *os.File
	prefix  stampedPrefix
	needles [][]byte
	pending []byte // start of the unfinished line; at most maxLine bytes
	out     []byte // reused
}

func openFilter(out Output) (*lineFilter, error) {
	file, err := os.OpenFile(out.FilteredFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open file for filtered lines: %w", err)
	}
	f := &lineFilter{file: file, prefix: newStampedPrefix(out.Prefix)}
	for _, needle := range out.Filters {
		f.needles = append(f.needles, []byte(needle))
	}
	return f, nil
}

// feed writes the matching lines that p completes.
func (f *lineFilter) feed(p []byte) error {
	f.out = f.out[:0]
	f.prefix.stamp()
	for whole := true; whole; {
		var line []byte
		line, p, whole = bytes.Cut(p, []byte{'\n'})
		for {
			before, after, found := bytes.Cut(line, []byte{'\r'})
			if !found {
				break
			}
			f.end(before)
			line = after
		}
		if whole {
			f.end(line)
		} else {
			f.hold(line)
		}
	}
	return f.write()
}

// close writes the unfinished line if it matches, and closes the file.
func (f *lineFilter) close() error {
	f.out = f.out[:0]
	f.prefix.stamp()
	f.end(nil)
	err := f.write()
	if closeErr := f.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// hold appends to the unfinished line. A line that gets too long ends there.
func (f *lineFilter) hold(p []byte) {
	for len(f.pending)+len(p) > maxLine {
		n := maxLine - len(f.pending)
		f.check(append(f.pending, p[:n]...))
		f.pending = f.pending[:0]
		p = p[n:]
	}
	f.pending = append(f.pending, p...)
}

// end completes the unfinished line with rest and checks it.
func (f *lineFilter) end(rest []byte) {
	if len(f.pending) == 0 {
		f.check(rest)
		return
	}
	f.hold(rest)
	f.check(f.pending)
	f.pending = f.pending[:0]
}

// check adds a whole line, without its line end, to out if it matches.
func (f *lineFilter) check(line []byte) {
	for _, needle := range f.needles {
		if bytes.Contains(line, needle) {
			f.out = append(append(append(f.out, f.prefix.text...), line...), '\n')
			return
		}
	}
}

func (f *lineFilter) write() error {
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.file.Write(f.out)
	return err
}
