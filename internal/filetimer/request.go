package filetimer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"syscall"
)

// maxRequest is the longest request in bytes, without its newline: PIPE_BUF of Linux. A client sends no longer one,
// because it would not arrive in one piece.
const maxRequest = 4096

// maxSignal is the largest signal number of Linux.
const maxSignal = 64

// request is what a client asks for: FileTimerRequest in torch 2.14
// (torch/distributed/elastic/timer/file_based_local_timer.py).
type request struct {
	pid   int // above 0
	scope string
	// expires is in seconds since 1970, by the wall clock. Below 0 it releases the timer. Infinity and NaN become 1e300.
	expires float64
	signal  syscall.Signal // 0: the process is not signaled
}

// parseRequest parses one line.
func parseRequest(line []byte) (request, error) {
	var r struct {
		PID     *int64   `json:"pid"`
		Scope   *string  `json:"scope_id"`
		Expires *float64 `json:"expiration_time"`
		Signal  *int64   `json:"signal"`
	}
	// Python writes a time that is no finite number without quotes, which is not JSON. Such a timer never expires.
	for _, never := range []string{"Infinity", "NaN"} {
		line = bytes.Replace(line, []byte(`"expiration_time": `+never), []byte(`"expiration_time": 1e300`), 1)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return request{}, errors.New("it is not a JSON object with the fields of a timer")
	}
	switch {
	case r.PID == nil || r.Scope == nil || r.Expires == nil || r.Signal == nil:
		return request{}, errors.New("one of pid, scope_id, expiration_time and signal is missing")
	case *r.PID < 1 || *r.PID > math.MaxInt32:
		return request{}, fmt.Errorf("pid %d is not that of a process", *r.PID)
	case *r.Signal > maxSignal:
		return request{}, fmt.Errorf("there is no signal %d", *r.Signal)
	}
	return request{
		pid: int(*r.PID), scope: *r.Scope, expires: *r.Expires, signal: syscall.Signal(max(0, *r.Signal)),
	}, nil
}

// parseLine parses a line that may begin with a part of another request, whose writer died before the newline. A
// problem is the reason why the line, or its beginning, is ignored; nil if all of it is used.
func parseLine(line []byte) (r request, ok bool, problem error) {
	if r, problem = parseRequest(line); problem == nil {
		return r, true, nil
	}
	// A request has no object in it, so the last text that can begin a request is the only candidate.
	if i := bytes.LastIndex(line, []byte(`{"`)); i > 0 {
		if last, err := parseRequest(line[i:]); err == nil {
			return last, true, errors.New("its beginning is a part of another request")
		}
	}
	return request{}, false, problem
}

// splitter cuts a stream into lines. It keeps at most maxRequest bytes of an unfinished line. Its zero value is ready.
type splitter struct {
	part []byte
	long bool // the current line is too long, and is skipped
}

// feed takes the next bytes of the stream. It calls line for each line that they complete, without its newline, and
// tooLong for each line that becomes too long. line must not keep its argument.
func (s *splitter) feed(data []byte, line func([]byte), tooLong func()) {
	for len(data) > 0 {
		piece, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		if !s.long && len(s.part)+len(piece) > maxRequest {
			s.long = true
			tooLong()
		}
		switch {
		case s.long:
			s.part = s.part[:0]
		case ended && len(s.part) == 0:
			line(piece)
		default:
			s.part = append(s.part, piece...)
			if ended {
				line(s.part)
			}
		}
		if ended {
			s.part, s.long = s.part[:0], false
		}
	}
}
