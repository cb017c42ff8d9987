package main

import (
	"context"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// Workers' connections do not keep agents out of a store that may open few files: the store reserves some files for
// agents and warns. A worker that leaves makes room for another.
func TestWorkersLeaveFilesToAgents(t *testing.T) {
	s := startWrappedStore(t, []string{"sh", "-c", `ulimit -n 128; exec "$@"`, "sh"})
	worker := s.dial()
	worker.send(add("n", 1))
	worker.sum(1)
	var crowd []net.Conn
	validate := []byte{0, 0xce, 0xf7, 0x85, 0x3c} // torch 2.x sends this first
	for range 200 {
		nc, err := net.DialTimeout("tcp", s.addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, nc)
		if _, err := nc.Write(validate); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 { // agents, each of which has a file
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		agent, err := coord.Dial(ctx, coord.DialOptions{Addr: s.addr, RunID: "r"})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Close(context.WithoutCancel(t.Context())) })
	}
	for _, nc := range crowd {
		_ = nc.Close()
	}
	testenv.Await(t, "another worker to be served", awaitBound, func() bool {
		other := s.dial()
		other.send(add("n", 1))
		_, err := io.ReadFull(other, make([]byte, 8))
		return err == nil
	})
	s.signal(syscall.SIGTERM)
	s.end() // from here on nothing writes its stderr
	want := "this process may have 128 open files (ulimit -n) and keeps 16 of them for agents and for itself; raise the limit"
	if n := strings.Count(s.stderr.String(), want); n != 1 {
		t.Errorf("%d warnings of files, want one:\n%s", n, s.stderr.String())
	}
}
