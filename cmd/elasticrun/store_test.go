package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/internal/storeserver"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// storeProcess is elasticrun store under test.
type storeProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string
	health string // URL
	stderr strings.Builder
	ended  chan struct{}
}

// startStore starts the binary on free ports and waits until it is ready.
func startStore(t *testing.T, flags ...string) *storeProcess {
	t.Helper()
	return startWrappedStore(t, nil, flags...)
}

// startWrappedStore is startStore with a command that executes its arguments.
func startWrappedStore(t *testing.T, wrap []string, flags ...string) *storeProcess {
	t.Helper()
	s := &storeProcess{t: t, ended: make(chan struct{})}
	command := append(slices.Clone(wrap), testenv.Binary(t), "store", "--listen=127.0.0.1:0", "--health=127.0.0.1:0")
	s.cmd = exec.Command(command[0], append(command[1:], flags...)...)
	mark := testenv.Mark()
	s.cmd.Env = append(os.Environ(), mark)
	s.cmd.Stderr = &s.stderr
	stdout := testenv.StartWithOutput(t, s.cmd)
	ready, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(ready)
	if err != nil || len(words) != 7 {
		t.Errorf("not ready: %q, %v", ready, err)
	} else {
		s.addr, s.health = words[3], words[6]
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, unless the test failed
		<-s.ended
		testenv.NothingLeft(t, mark)
	})
	if t.Failed() {
		t.FailNow()
	}
	return s
}

func (s *storeProcess) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the store and returns its exit code.
func (s *storeProcess) end() int {
	s.t.Helper()
	select {
	case <-s.ended:
		return testenv.ExitCode(s.cmd.ProcessState)
	case <-time.After(awaitBound):
		s.t.Fatalf("the store does not end\n%s", &s.stderr)
		return 0
	}
}

// storeHealth is a health answer.
type storeHealth struct {
	Code    int
	Status  string
	Open    int
	Refused map[string]int
	Keys    int
}

func (s *storeProcess) ask() storeHealth {
	s.t.Helper()
	answer, err := http.Get(s.health)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	h := storeHealth{Code: answer.StatusCode}
	if err := json.NewDecoder(answer.Body).Decode(&h); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// await asks until the answer is as wanted.
func (s *storeProcess) await(wanted func(storeHealth) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), awaitBound)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for h := s.ask(); !wanted(h); h = s.ask() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("the health stays %+v", h)
		case <-again.C:
		}
	}
}

// storeClient speaks torch 1.13's protocol to a store, in bytes.
type storeClient struct {
	t *testing.T
	net.Conn
}

func (s *storeProcess) dial() storeClient {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(awaitBound))
	s.t.Cleanup(func() { nc.Close() })
	return storeClient{s.t, nc}
}

func number(n int) []byte        { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
func text(s string) []byte       { return append(number(len(s)), s...) }
func set(k, v string) []byte     { return slices.Concat([]byte{0}, text(k), text(v)) }
func add(k string, n int) []byte { return slices.Concat([]byte{3}, text(k), number(n)) }
func waitFor(k string) []byte    { return slices.Concat([]byte{5}, number(1), text(k)) }
func numKeys() []byte            { return []byte{6} }
func (c storeClient) closed()    { c.t.Helper(); c.expect(nil, io.EOF) }
func (c storeClient) sum(n int)  { c.t.Helper(); c.expect(number(n), nil) }
func (c storeClient) send(b ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(slices.Concat(b...)); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads what want holds, and if that is nothing the end of the connection.
func (c storeClient) expect(want []byte, wantErr error) {
	c.t.Helper()
	got := make([]byte, max(1, len(want)))
	n, err := io.ReadFull(c, got)
	if errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	if !bytes.Equal(got[:n], want) || !errors.Is(err, wantErr) {
		c.t.Fatalf("the store sent %x, %v, want %x, %v", got[:n], err, want, wantErr)
	}
}

// halfway returns a client whose last request has come by half, and that request's other half, which has the answer 6.
func (s *storeProcess) halfway() (storeClient, []byte) {
	s.t.Helper()
	c, last := s.dial(), add("n", 1)
	c.send(add("n", 5), last[:7]) // one packet: when the first is answered the half has been read too
	c.sum(5)
	return c, last[7:]
}

// A store that gets SIGTERM ends waits and idle connections, logs this, lets the current request finish and exits with
// 0.
func TestStoreStops(t *testing.T) {
	t.Parallel()
	s := startStore(t)
	idle, waiting := s.dial(), s.dial()
	idle.send(add("n", 0))
	idle.sum(0)
	waiting.send(add("n", 0), waitFor("absent"))
	waiting.sum(0)
	half, rest := s.halfway()
	if h := s.ask(); h.Code != 200 || h.Status != "ok" || h.Open != 3 {
		t.Errorf("health: %+v", h)
	}

	s.signal(syscall.SIGTERM)
	idle.closed()
	waiting.closed()
	if h := s.ask(); h.Code != 503 || h.Status != "stopping" || h.Open != 1 || h.Keys != 1 {
		t.Errorf("health while it stops: %+v", h)
	}
	if nc, err := net.Dial("tcp", s.addr); err == nil {
		nc.Close()
		t.Error("the port still listens")
	}
	half.send(rest)
	half.sum(6)
	half.closed()
	if code := s.end(); code != 0 || s.stderr.String() != "" {
		t.Errorf("exit code %d\n%s", code, &s.stderr)
	}
}

// Half a request delays the stop for at most the grace, and the log says which connections were closed.
func TestStoreGrace(t *testing.T) {
	t.Parallel()
	s := startStore(t, "--grace=0.1")
	half, _ := s.halfway()
	s.signal(syscall.SIGINT)
	half.closed()
	if code := s.end(); code != 0 || !strings.Contains(s.stderr.String(),
		"--grace is over: connections with an unfinished request are closed connections=1") {
		t.Errorf("exit code %d\n%s", code, &s.stderr)
	}
}

// A second signal, a second after the first, does not wait for the grace; the same signal at once is a copy of the
// first.
func TestStoreSignalTwice(t *testing.T) {
	t.Parallel()
	s := startStore(t, "--grace=10000")
	half, _ := s.halfway()
	first := time.Now()
	s.signal(syscall.SIGTERM)
	s.await(func(h storeHealth) bool { return h.Status == "stopping" })
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	bound := time.After(awaitBound)
	for ended := false; !ended; {
		select {
		case <-bound:
			t.Fatal("the store does not end")
		case <-again.C:
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		case <-s.ended:
			ended = true
		}
	}
	half.closed()
	if took := time.Since(first); took < duplicateWindow {
		t.Errorf("it ended %v after the first signal", took)
	}
	lines := regexp.MustCompile("^elasticrun: received SIGTERM( from .*)?\nelasticrun: exit_code=143 reason=signal\n$")
	if code := s.end(); code != 143 || !lines.MatchString(s.stderr.String()) {
		t.Errorf("exit code %d\n%s", code, &s.stderr)
	}
}

// A request that does not fit into the memory is refused, counted and logged, and the store continues.
func TestStoreMemoryLimit(t *testing.T) {
	t.Parallel()
	s := startStore(t, "--max-memory=1MiB")
	one, greedy := s.dial(), s.dial()
	one.send(add("n", 5))
	one.sum(5)
	_, _ = greedy.Write(set("large", strings.Repeat("x", 2<<20))) // it is closed meanwhile
	greedy.closed()
	if h := s.ask(); h.Code != 200 || h.Refused["out of memory"] != 1 || h.Open != 1 || h.Keys != 1 {
		t.Errorf("health: %+v", h)
	}
	one.send(numKeys())
	one.sum(1)
	s.signal(syscall.SIGTERM)
	if code := s.end(); code != 0 || !strings.Contains(s.stderr.String(), `reason="out of memory"`) {
		t.Errorf("exit code %d\n%s", code, &s.stderr)
	}
}

// storeScript is a worker of either torch: it adds, sets and gets, and waits for the other's key.
const storeScript = `
import os, sys, torch
from datetime import timedelta
from torch.distributed import TCPStore
host, port, own, other = sys.argv[1:]
old, libuv = torch.__version__.startswith("1."), os.environ.get("USE_LIBUV") != "0"
store = TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=180), **({} if old else {"use_libuv": libuv}))
store.add("sum", 1)
store.set(own, "of " + own)
assert store.get(own) == b"of " + own.encode()
print("set", flush=True)
store.wait([other])
assert store.get(other) == b"of " + other.encode()
print("sum", store.add("sum", 0), flush=True)
`

// torchClient is a process with a real torch.
type torchClient struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs bytes.Buffer
}

func (s *storeProcess) torch(version, own, other string) *torchClient {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &torchClient{cmd: exec.Command(testenv.Torch(s.t, version), "-c", storeScript, host, port, own, other)}
	c.cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	c.cmd.Stderr = &c.errs
	c.out = bufio.NewReader(testenv.StartWithOutput(s.t, c.cmd))
	s.t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	return c
}

func (s *storeProcess) expectLine(c *torchClient, want string) {
	s.t.Helper()
	bound := time.AfterFunc(3*awaitBound, func() { _ = c.cmd.Process.Kill() }) // a busy machine imports torch slowly
	defer bound.Stop()
	if line, err := c.out.ReadString('\n'); line != want+"\n" {
		_ = c.cmd.Wait()
		s.t.Fatalf("torch wrote %q, %v, want %q\n%s", line, err, want, &c.errs)
	}
}

// Real torch clients of both generations share the store, and one that is killed while it waits does not affect the
// others.
func TestStoreTorch(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	for _, version := range []string{"2.14", testenv.Official} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			testStoreTorch(t, version)
		})
	}
}

func testStoreTorch(t *testing.T, newer string) {
	t.Helper()
	for _, v := range []string{"1.13", newer} {
		testenv.Torch(t, v)
	}
	s := startStore(t)
	killed, first := s.torch(newer, "k", "absent"), s.torch("1.13", "old", "new")
	s.expectLine(killed, "set")
	s.expectLine(first, "set")
	s.await(func(h storeHealth) bool { return h.Open == 3 })
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.await(func(h storeHealth) bool { return h.Open == 2 })

	second := s.torch(newer, "new", "old")
	s.expectLine(second, "set")
	for _, c := range []*torchClient{first, second} {
		s.expectLine(c, "sum 3")
		_, _ = c.out.ReadByte() // the end
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, &c.errs)
		}
	}
	c := s.dial()
	c.send(add("/sum", 0)) // torch puts the slash there
	c.sum(3)
	if h := s.ask(); len(h.Refused) != 0 || h.Keys != 4 {
		t.Errorf("health: %+v", h)
	}
	s.signal(syscall.SIGTERM)
	c.closed()
	if code := s.end(); code != 0 || s.stderr.String() != "" {
		t.Errorf("exit code %d\n%s", code, &s.stderr)
	}
}

// The store waits for every goroutine that it has started, however it ends.
func TestStoreLeavesNoGoroutine(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	stopped := &agent.SignalError{Signal: syscall.SIGTERM}
	for _, tt := range []struct {
		name, grace string
		finish      bool // the request under way
		urgent      bool
		want        error
	}{
		{name: "in order", grace: "10000", finish: true},
		{name: "the grace is over", grace: "0"},
		{name: "urgent", grace: "10000", urgent: true, want: stopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := config.LoadStore([]string{
				"--listen=127.0.0.1:0", "--health=127.0.0.1:0", "--grace", tt.grace,
				"--log-level=error",
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			urgent := make(chan struct{})
			r, w := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- storeserver.Serve(ctx, urgent, cfg, "test", w, nil) }()
			ready, err := bufio.NewReader(r).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(ready)
			s := &storeProcess{t: t, addr: words[3], health: words[6]}
			half, rest := s.halfway()
			s.ask()
			cancel(stopped)
			if tt.finish {
				half.send(rest)
				half.sum(6)
			}
			if tt.urgent {
				close(urgent)
			}
			half.closed()
			if err := <-ended; !errors.Is(err, tt.want) {
				t.Errorf("serveStore returned %v, want %v", err, tt.want)
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
	goleak.VerifyNone(t, ignore)
}
