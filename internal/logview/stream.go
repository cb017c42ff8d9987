package logview

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

const (
	// maxLine is the longest line, in bytes. A longer one is shown as several lines.
	maxLine = 1 << 20
	// readSize is how much is read at once.
	readSize = 64 << 10
)

// stream reads the log of one stream of one worker: the rotated files, then the current file, as far as it was
// written.
type stream struct {
	path      string // of the current file
	localRank int
	std       workerlog.StreamSet
	prefix    workerlog.Prefix
	clock     *clock
	timeline  *os.File // the clock's; nil: none

	file    *os.File // being read; nil: none yet
	number  int      // the number of file once it is rotated
	rotated bool     // file was rotated, so it no longer grows
	end     point    // the known end of the stream
	final   bool     // no more bytes follow: unfinished text is a line
	atEnd   bool     // the last read found nothing more

	buf    []byte // read but not yet returned
	offset int64  // of buf[0] in the stream
	taken  int    // bytes at the start of buf that the last call returned
	seen   int    // bytes of buf that contain no line end
}

// close closes the stream's files.
func (s *stream) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
	if s.timeline != nil {
		_ = s.timeline.Close()
	}
}

func (s *stream) next() (line, bool, error) {
	s.offset += int64(s.taken)
	s.buf = s.buf[s.taken:]
	s.taken = 0
	for {
		if end := bytes.IndexByte(s.buf[s.seen:], '\n'); end >= 0 {
			return s.take(s.seen+end, s.seen+end+1)
		}
		s.seen = len(s.buf)
		if len(s.buf) >= maxLine {
			return s.take(maxLine, maxLine)
		}
		more, err := s.fill()
		if err != nil {
			return line{}, false, err
		}
		switch {
		case more:
		case s.final && len(s.buf) > 0:
			return s.take(len(s.buf), len(s.buf))
		default:
			return line{}, false, nil
		}
	}
}

// take returns the first n bytes of buf as a line. With its line end the line uses used bytes.
func (s *stream) take(n, used int) (line, bool, error) {
	at, err := s.clock.when(s.offset, s.end)
	s.taken, s.seen = used, 0
	return line{at, s.buf[:n]}, err == nil, err
}

// fill tries to read more bytes. It reports whether it read some, or may read some when it is called again.
func (s *stream) fill() (bool, error) {
	if s.file == nil {
		return s.first()
	}
	if cap(s.buf)-len(s.buf) < readSize {
		s.buf = append(make([]byte, 0, 2*len(s.buf)+2*readSize), s.buf...)
	}
	n, err := s.file.Read(s.buf[len(s.buf) : len(s.buf)+readSize])
	if n > 0 {
		s.buf = s.buf[:len(s.buf)+n]
		s.clock.reread()
		if info, err := s.file.Stat(); err == nil && !s.rotated {
			s.end = point{info.ModTime(), s.offset + int64(len(s.buf))}
			if s.atEnd {
				s.clock.saw(point{s.end.at, s.end.bytes - int64(n)})
			}
		}
		s.atEnd = false
		return true, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	more, err := s.advance()
	s.atEnd = !more
	return more, err
}

// first opens the oldest file that exists.
func (s *stream) first() (bool, error) {
	numbers, err := s.pieces()
	if err != nil {
		return false, err
	}
	if len(numbers) > 0 {
		s.number = numbers[0]
	} else {
		last, err := s.lastPiece()
		if err != nil {
			return false, err
		}
		s.number = last + 1
	}
	if opened, err := s.open(len(numbers) > 0); !opened {
		return false, err
	}
	if s.number > 1 {
		s.offset, err = s.clock.skip(s.number - 1)
	}
	return true, err
}

// lastPiece returns the number of the last rotated file in the timeline.
func (s *stream) lastPiece() (int, error) {
	if s.timeline == nil {
		return 0, nil
	}
	whole := io.NewSectionReader(s.timeline, 0, math.MaxInt64)
	return newClock(whole, s.localRank, s.std).lastPiece()
}

// advance opens the next file, if the current one was read to its end and was rotated.
func (s *stream) advance() (bool, error) {
	info, err := s.file.Stat()
	if err != nil {
		return false, err
	}
	if current, err := os.Stat(s.path); err != nil || os.SameFile(info, current) {
		return false, ignoreMissing(err)
	}
	if !s.rotated { // it may have grown before it was rotated
		s.rotated = true
		return true, nil
	}
	numbers, err := s.pieces()
	if err != nil {
		return false, err
	}
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return n <= s.number })
	next := s.number + 1
	if len(numbers) > 0 {
		next = numbers[0]
	}
	old, number := s.file, s.number
	s.number = next
	opened, err := s.open(len(numbers) > 0)
	if !opened {
		s.file, s.number = old, number
		return false, err
	}
	_ = old.Close()
	s.rotated = false
	if next > number+1 { // the files between were removed
		start, err := s.clock.skip(next - 1)
		s.offset = max(s.offset, start-int64(len(s.buf)))
		return true, err
	}
	return true, nil
}

// open opens the file of s.number: under its number, or as the current file. It reports false if the file does not
// exist; a change notice follows when it appears.
func (s *stream) open(numbered bool) (bool, error) {
	path := s.path
	if numbered {
		path += "." + strconv.Itoa(s.number)
	}
	file, err := openLog(path)
	if err != nil {
		return false, ignoreMissing(err)
	}
	if numbered {
		s.file = file
		return true, nil
	}
	// The current file has that number only if no file was rotated meanwhile.
	if info, err := os.Stat(s.path + "." + strconv.Itoa(s.number)); err == nil {
		if mine, err := file.Stat(); err != nil || !os.SameFile(info, mine) {
			_ = file.Close()
			return s.open(true)
		}
	}
	s.file = file
	return true, nil
}

// pieces lists the numbers of the rotated files, ascending.
func (s *stream) pieces() ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var numbers []int
	for _, entry := range entries {
		text, found := strings.CutPrefix(entry.Name(), filepath.Base(s.path)+".")
		if n, err := strconv.Atoi(text); found && err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// ignoreMissing drops the error of a file that does not exist: it was rotated away, or a user removed it.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
