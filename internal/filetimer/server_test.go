package filetimer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines collects log lines.
type lines struct{ testenv.Buffer }

// all returns the lines so far.
func (l *lines) all() []string {
	return strings.Split(strings.TrimSpace(l.String()), "\n")
}

func never() bool { return false }

// open starts a server, and closes it at the end of the test.
func open(t *testing.T, path string, log *lines) *Server {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	s, err := Open(path, never, zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// write writes text into the FIFO as a client does.
func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
	_ = f.Close()
}

// expiry waits for the next one, without its times.
func expiry(t *testing.T, s *Server) Expiry {
	t.Helper()
	for {
		select {
		case <-s.Expired():
		case <-time.After(time.Minute):
			t.Fatal("nothing expires")
		}
		all := s.Take()
		if len(all) == 0 {
			continue
		}
		if len(all) > 1 {
			t.Fatalf("%d expire: %+v", len(all), all)
		}
		if all[0].Set.IsZero() {
			t.Error("nobody knows when the timer was set")
		}
		return Expiry{PID: all[0].PID, Scope: all[0].Scope, Signal: all[0].Signal}
	}
}

// in returns the wall-clock time after d, as in a request.
func in(d time.Duration) float64 { return float64(time.Now().Add(d).UnixNano()) / 1e9 }

func TestServer(t *testing.T) {
	var log lines
	path := filepath.Join(t.TempDir(), "timer")
	s := open(t, path, &log)
	if s.Path() != path {
		t.Errorf("serves %s", s.Path())
	}
	silent, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0) // a client that never writes
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	write(t, path, record(7, "released", in(time.Minute), 9)+"\n"+record(7, "a", in(20*time.Millisecond), 9)+"\n"+
		record(7, "released", -1, 0)+"\n")
	if diff := cmp.Diff(Expiry{PID: 7, Scope: "a", Signal: syscall.SIGKILL}, expiry(t, s)); diff != "" {
		t.Error(diff)
	}
	if text := log.all(); text[0] != "" {
		t.Errorf("log: %q", text)
	}
}

// A line that is not a request is logged once, and does not keep the next request from working.
func TestGarbage(t *testing.T) {
	var log lines
	path := filepath.Join(t.TempDir(), "timer")
	s := open(t, path, &log)
	for range 3 {
		write(t, path, "hello\n\x00\xff\n{}\n"+record(-1, "group", 1, 9)+"\n"+record(-2, "group", 1, 9)+"\n")
		write(t, path, strings.Repeat("y", maxRequest+1)+"\n")
	}
	valid := record(7, "a", 1, 15)
	write(t, path, valid[:30])
	write(t, path, valid+"\n")
	if diff := cmp.Diff(Expiry{PID: 7, Scope: "a", Signal: syscall.SIGTERM}, expiry(t, s)); diff != "" {
		t.Error(diff)
	}
	var why []string
	for _, line := range log.all() {
		_, line, _ = strings.Cut(line, `"why":"`)
		line, _, _ = strings.Cut(line, `"`)
		why = append(why, line)
	}
	if diff := cmp.Diff([]string{
		"it is not a JSON object with the fields of a timer",
		"one of pid, scope_id, expiration_time and signal is missing",
		"pid -1 is not that of a process",
		"it is longer than 4096 bytes",
		"its beginning is a part of another request",
	}, why); diff != "" {
		t.Error(diff)
	}
}

// A client that fills the pipe does not end the service.
func TestFullPipe(t *testing.T) {
	var log lines
	path := filepath.Join(t.TempDir(), "timer")
	s := open(t, path, &log)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Repeat("z", 3<<20)); err != nil {
		t.Fatal(err)
	}
	write(t, path, "\n"+record(7, "a", 1, 9)+"\n")
	if diff := cmp.Diff(Expiry{PID: 7, Scope: "a", Signal: syscall.SIGKILL}, expiry(t, s)); diff != "" {
		t.Error(diff)
	}
	if n := len(log.all()); n != 1 {
		t.Errorf("%d lines: %q", n, log.all())
	}
}

func TestReset(t *testing.T) {
	var log lines
	s := open(t, "", &log)
	write(t, s.Path(), record(7, "a", 1, 9)+"\n")
	<-s.Expired()
	s.Reset()
	if all := s.Take(); len(all) > 0 {
		t.Errorf("%+v is left", all)
	}
	write(t, s.Path(), record(8, "b", 1, 9)+"\n")
	if got := expiry(t, s); got.PID != 8 {
		t.Errorf("%+v expires", got)
	}
}

// A client that writes endless requests does not fill the memory.
func TestPendingIsBounded(t *testing.T) {
	var log lines
	s := open(t, "", &log)
	now := time.Now()
	for i := range 3 * maxPending {
		s.receive([]byte(record(i+1, "a", 1, 9)+"\n"), now)
		if i%100 == 0 {
			s.expire(now)
		}
	}
	s.expire(now)
	if n := len(s.Take()); n != maxPending {
		t.Errorf("%d are pending", n)
	}
}

func TestPath(t *testing.T) {
	const inTheWay = "it exists and is no FIFO"
	for _, tt := range []struct {
		name  string
		make  func(path string) error
		taken bool   // the path can be used
		why   string // in the only log line
	}{
		{name: "nothing", make: func(string) error { return nil }, taken: true},
		{name: "an old FIFO", make: func(path string) error { return unix.Mkfifo(path, 0o644) }, taken: true},
		{name: "an empty file", make: func(path string) error { return os.WriteFile(path, nil, 0o600) }, taken: true},
		{name: "a file", make: func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) }, why: inTheWay},
		{name: "a folder", make: func(path string) error { return os.Mkdir(path, 0o700) }, why: inTheWay},
		{name: "a link", make: func(path string) error { return os.Symlink("elsewhere", path) }, why: inTheWay},
		{
			name: "no folder", make: func(path string) error { return os.Remove(filepath.Dir(path)) },
			why: "cannot make a FIFO there: no such file or directory",
		},
		{name: "another agent of torch", make: func(path string) error {
			err := unix.Mkfifo(path, 0o644)
			f, openErr := os.OpenFile(path, os.O_RDWR, 0)
			t.Cleanup(func() { _ = f.Close() })
			return errors.Join(err, openErr)
		}, why: "another agent serves it"},
		{name: "another agent, which has locked it and not yet opened it for reading", make: func(path string) error {
			err := unix.Mkfifo(path, 0o600)
			reader, readErr := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
			f, writeErr := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
			t.Cleanup(func() { _ = f.Close() })
			return errors.Join(err, readErr, writeErr, reader.Close(), unix.Flock(int(f.Fd()), unix.LOCK_EX))
		}, why: "another agent serves it"},
		{name: "another agent", make: func(path string) error {
			other, err := Open(path, never, zerolog.Nop())
			t.Cleanup(other.Close)
			return err
		}, why: "another agent serves it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log lines
			path := filepath.Join(t.TempDir(), "timer")
			check(t, tt.make(path))
			s := open(t, path, &log)
			if (s.Path() == path) != tt.taken {
				t.Errorf("serves %s", s.Path())
			}
			if got := log.all(); len(got) != 1 || tt.why == "" && got[0] != "" || !strings.Contains(got[0], tt.why) {
				t.Errorf("log: %q", got)
			}
			if st, err := os.Lstat(s.Path()); err != nil || st.Mode() != os.ModeNamedPipe|0o600 {
				t.Errorf("%v, %v", st.Mode(), err)
			}
			write(t, s.Path(), record(7, "a", 1, 9)+"\n")
			if got := expiry(t, s); got.PID != 7 {
				t.Errorf("%+v expires", got)
			}
			s.Close()
			if _, err := os.Lstat(s.Path()); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", s.Path(), err)
			}
		})
	}
}

// Of agents that start at once, exactly one gets the path.
func TestOneServer(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for range 20 {
		path := filepath.Join(t.TempDir(), "timer")
		check(t, unix.Mkfifo(path, 0o644))
		servers := make([]*Server, 8)
		var opened sync.WaitGroup
		for i := range servers {
			opened.Go(func() {
				var err error
				if servers[i], err = Open(path, never, zerolog.Nop()); err != nil {
					t.Error(err)
				}
			})
		}
		opened.Wait()
		owners := 0
		for _, s := range servers {
			if s.Path() == path {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("%d agents serve the same FIFO", owners)
		}
		for _, s := range servers {
			s.Close()
		}
	}
}

// A server leaves a FIFO alone that another program has made in its place.
func TestReplaced(t *testing.T) {
	var log lines
	path := filepath.Join(t.TempDir(), "timer")
	s, err := Open(path, never, zerolog.New(&log))
	check(t, err)
	check(t, os.Remove(path))
	check(t, unix.Mkfifo(path, 0o644))
	s.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
