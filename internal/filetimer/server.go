package filetimer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// PathEnv is the variable that names the FIFO, for the agent and for its workers.
const PathEnv = "TORCHELASTIC_TIMER_FILE"

// Server reads the requests of clients and keeps their timers. Close it.
type Server struct {
	file      *os.File
	log       zerolog.Logger
	suspended func() bool
	expired   chan struct{} // capacity 1
	done      chan struct{} // closed when the reading goroutine has ended

	// The fields below belong to the reading goroutine.
	lines      splitter
	buffer     []byte
	complained map[string]bool

	mu      sync.Mutex
	timers  timers
	pending []Expiry // what Take returns next
}

// Open makes a FIFO at path and begins to serve it. If path is empty or cannot be used, the FIFO gets a new name in the
// folder for temporary files; Open logs why path cannot be used. suspended reports whether the workers are stopped on
// purpose, which stops their timers too. Open fails if it cannot make a FIFO at all.
func Open(path string, suspended func() bool, log zerolog.Logger) (*Server, error) {
	var file *os.File
	if path != "" {
		var err error
		if file, err = claim(path); err != nil {
			log.Warn().Err(err).Str("path", printable.Line(path)).
				Msg(PathEnv + " cannot be used: the workers get the name of another file")
		}
	}
	if file == nil {
		var err error
		if file, err = claimTemporary(); err != nil {
			return nil, err
		}
	}
	s := &Server{
		file: file, log: log, suspended: suspended, expired: make(chan struct{}, 1), done: make(chan struct{}),
		buffer: make([]byte, 64<<10), complained: make(map[string]bool),
	}
	go s.serve()
	return s, nil
}

// Path returns the path of the FIFO.
func (s *Server) Path() string { return s.file.Name() }

// Expired returns a channel that receives after Take has got something new to return.
func (s *Server) Expired() <-chan struct{} { return s.expired }

// Take returns the processes that have let timers expire since the last call. All timers that such a process had at
// that time are gone.
func (s *Server) Take() []Expiry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.pending
	s.pending = nil
	return all
}

// Reset forgets all timers. Call it when the processes that have set them are gone.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timers, s.pending = timers{}, nil
}

// Close stops the server and removes its FIFO.
func (s *Server) Close() {
	if names(s.Path(), s.file) { // another agent, such as torch's, may have replaced it
		_ = os.Remove(s.Path())
	}
	_ = s.file.Close()
	<-s.done
}

// serve reads until the file is closed.
func (s *Server) serve() {
	defer close(s.done)
	for {
		s.mu.Lock()
		next := s.timers.next()
		s.mu.Unlock()
		_ = s.file.SetReadDeadline(next)
		n, err := s.file.Read(s.buffer)
		late := errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil && !late {
			if !errors.Is(err, os.ErrClosed) {
				s.log.Warn().Err(err).Msg("timers of workers are served no longer; everything else goes on")
			}
			return
		}
		s.receive(s.buffer[:n], time.Now())
		if late {
			s.drain()
		}
		s.expire(time.Now())
	}
}

// maxDrain bounds what drain reads, in bytes, against a client that never stops writing. It is the largest size of a
// pipe that needs no privilege.
const maxDrain = 1 << 20

// drain reads what has been written so far, so that a timer that was released in time does not expire.
func (s *Server) drain() {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	_ = s.file.SetReadDeadline(time.Time{})
	for total := 0; total < maxDrain; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), s.buffer) // below 0 if there is nothing
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		s.receive(s.buffer[:n], time.Now())
		total += n
	}
}

// receive applies requests that arrived at that time.
func (s *Server) receive(data []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timers.check(now, s.suspended())
	s.lines.feed(data, func(line []byte) {
		r, ok, problem := parseLine(line)
		if problem != nil {
			s.complain(problem)
		}
		if ok && !s.timers.apply(r, now) {
			s.complain(fmt.Errorf("%d timers are running, and no more are kept", maxTimers))
		}
	}, func() {
		s.complain(fmt.Errorf("it is longer than %d bytes", maxRequest))
	})
}

// complain logs a problem, the first time. Problems that differ in numbers only are the same.
func (s *Server) complain(problem error) {
	kind := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, problem.Error())
	if s.complained[kind] {
		return
	}
	s.complained[kind] = true
	s.log.Warn().Str("why", problem.Error()).Str("file", printable.Line(s.Path())).
		Msg("a request for the file timer is ignored; further ones of this kind are not logged")
}

// maxPending bounds what waits for Take, against a client that sets ever new timers that have expired already.
const maxPending = 1 << 10

// expire makes the timers that have expired available to Take.
func (s *Server) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.timers.expire(now)
	if len(all) == 0 {
		return
	}
	s.pending = append(s.pending, all[:min(len(all), maxPending-len(s.pending))]...)
	select {
	case s.expired <- struct{}{}:
	default:
	}
}
