package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// TestExplainPorts checks that the error names each candidate port of the rendezvous and the process that holds it.
func TestExplainPorts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the process that holds a port is known on Linux only")
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	cfg := &config.Config{MaxNodes: 2}
	cfg.Rendezvous.Endpoint = "127.0.0.1"
	other := &coord.RefusedError{Reason: coord.ReasonRunID}
	got := Explain(cfg, fmt.Errorf("join: %w", &elastic.PortsTakenError{Host: "127.0.0.1", Ports: []elastic.TakenPort{
		{Port: port, Err: fmt.Errorf("listen: %w", syscall.EADDRINUSE), Found: fmt.Errorf("connect: %w", other)},
		{Port: 80, Err: syscall.EACCES, Found: errors.New("nobody listens there")},
	}}))
	bad, ok := errors.AsType[*config.UsageError](got)
	if !ok || bad.Where != "--rdzv-endpoint=127.0.0.1" {
		t.Fatalf("got %v", got)
	}
	for _, want := range []string{
		fmt.Sprintf("no candidate port of the rendezvous is free: port %d is held by pid %d", port, os.Getpid()),
		", the store of another job; 80: this user may not listen there; ",
	} {
		if !strings.Contains(bad.Problem, want) {
			t.Errorf("%q does not say %q", bad.Problem, want)
		}
	}
}
