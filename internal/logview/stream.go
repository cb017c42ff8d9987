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
	// maxLine bounds, in bytes, how much of a line is held; a longer one is shown as several.
	maxLine = 1 << 20
	// readSize is how much is read at once.
	readSize = 64 << 10
)

// stream reads the log of one stream of one worker: what rotation put aside, then
// the current file, as far as it was written.
type stream struct {
	path      string // of the current file
	localRank int
	std       workerlog.Std
	prefix    workerlog.Prefix
	clock     *clock
	timeline  *os.File // the clock's; nil: none

	file   *os.File // being read; nil: none yet
	number int      // of the file if it is, or will be, put aside
	aside  bool     // it was put aside, so that it no longer grows
	end    point    // of the stream, as far as it is known
	final  bool     // what has no line end now is a line
	rests  bool     // it had nothing more when it was read last

	buf    []byte // read and not yet returned
	offset int64  // of buf[0] in the stream
	taken  int    // bytes at the start of buf that were returned last
	seen   int    // bytes of buf in which no line ends
}

// close releases the stream's files.
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

// take returns the first n bytes of what was read as a line; with its end it has used.
func (s *stream) take(n, used int) (line, bool, error) {
	at, err := s.clock.when(s.offset, s.end)
	s.taken, s.seen = used, 0
	return line{at, s.buf[:n]}, err == nil, err
}

// fill reads on, and reports whether there was more or may be.
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
		s.clock.again()
		if info, err := s.file.Stat(); err == nil && !s.aside {
			s.end = point{info.ModTime(), s.offset + int64(len(s.buf))}
			if s.rests {
				s.clock.saw(point{s.end.at, s.end.bytes - int64(n)})
			}
		}
		s.rests = false
		return true, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	more, err := s.advance()
	s.rests = !more
	return more, err
}

// first opens the oldest file that is there.
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

// lastPiece asks the timeline for the number of the file that was put aside last.
func (s *stream) lastPiece() (int, error) {
	if s.timeline == nil {
		return 0, nil
	}
	whole := io.NewSectionReader(s.timeline, 0, math.MaxInt64)
	return newClock(whole, s.localRank, s.std).lastPiece()
}

// advance goes on to the file after the one that was read to its end, if that was
// put aside.
func (s *stream) advance() (bool, error) {
	info, err := s.file.Stat()
	if err != nil {
		return false, err
	}
	if current, err := os.Stat(s.path); err != nil || os.SameFile(info, current) {
		return false, ignoreMissing(err)
	}
	if !s.aside { // it may have grown in between
		s.aside = true
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
	s.aside = false
	if next > number+1 { // what was between has been removed
		start, err := s.clock.skip(next - 1)
		s.offset = max(s.offset, start-int64(len(s.buf)))
		return true, err
	}
	return true, nil
}

// open opens the file of s.number: under its number, or as the current one. It
// reports false where it is not there; that will be told.
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
	// It is the one of that number only if none was put aside meanwhile.
	if info, err := os.Stat(s.path + "." + strconv.Itoa(s.number)); err == nil {
		if mine, err := file.Stat(); err != nil || !os.SameFile(info, mine) {
			_ = file.Close()
			return s.open(true)
		}
	}
	s.file = file
	return true, nil
}

// pieces lists the numbers of the files that were put aside, ascending.
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

// ignoreMissing drops the error of a file that is not there: it was rotated away, or
// somebody removed it.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
