package elastic

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// TestUnreachable lists what an agent may find at an endpoint. Each line must be true whatever that is.
func TestUnreachable(t *testing.T) {
	const addr = "10.0.0.1:29400"
	dial := func(o coord.Obstacle, message string, err error) error {
		return &coord.DialError{Addr: addr, Obstacle: o, Message: message, Err: err}
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{
			"nobody", dial(coord.ObstacleRefused, "nobody listens there", syscall.ECONNREFUSED),
			"connect to the job's store at 10.0.0.1:29400: nobody listens there",
		},
		{
			"no route", dial(coord.ObstacleConnect, "no connection is possible", syscall.EHOSTUNREACH),
			"connect to the job's store at 10.0.0.1:29400: no connection is possible: there is no route to that machine, or it is down",
		},
		{
			"a busy store", dial(coord.ObstacleBusy, "it is closing", nil),
			"connect to the job's store at 10.0.0.1:29400: it is closing",
		},
		{
			"another program", dial(coord.ObstacleForeign, "an HTTP server is there, not a store", nil),
			"connect to the job's store at 10.0.0.1:29400: an HTTP server is there, not a store",
		},
		{
			"another job", &coord.RefusedError{Addr: addr, Reason: coord.ReasonRunID, Message: "the store belongs to another job"},
			"the store at 10.0.0.1:29400 refuses: the store belongs to another job",
		},
		{
			"a false certificate",
			&coord.RefusedError{Addr: addr, Reason: coord.ReasonStoreCertificate, Message: "it has expired"},
			"the store at 10.0.0.1:29400 is not accepted: it has expired",
		},
	} {
		u := &unreachableError{endpoint: machine.Endpoint{Host: "node1", Port: 29400}, ports: []int{29400}, tried: []error{tt.err}}
		want := "the job's store was not reached at rendezvous endpoint node1:29400: " + tt.want
		if u.Error() != want {
			t.Errorf("%s:\n%s, want\n%s", tt.name, u, want)
		}
	}
}

// TestSummarizeAttempts checks that the failures of many attempts fit into one short line that names each kind of
// failure.
func TestSummarizeAttempts(t *testing.T) {
	e := machine.Endpoint{Host: "node1", Port: 29400, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	u := &unreachableError{endpoint: e}
	taken := &PortsTakenError{Host: "node1"}
	for i := range 32 {
		port := 29400 + i
		addr := fmt.Sprintf("10.0.0.1:%d", port)
		var err error = &coord.DialError{
			Addr: addr, Message: "nobody listens there", Obstacle: coord.ObstacleRefused, Err: syscall.ECONNREFUSED,
		}
		switch {
		case i == 5:
			message := "another job\nof " + strings.Repeat("x", 5000)
			err = &coord.RefusedError{Addr: addr, Reason: coord.ReasonRunID, Message: message}
		case i > 20:
			err = &coord.DialError{Addr: addr, Message: fmt.Sprint("something odd ", i), Obstacle: coord.ObstacleForeign}
		case i == 20:
			err = errors.New("boom")
		}
		u.ports, u.tried = append(u.ports, port), append(u.tried, err)
		taken.Ports = append(taken.Ports, TakenPort{Port: port, Err: syscall.EADDRINUSE, Found: err})
	}
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"unreachable", u.Error(), []string{
			"the job's store was not reached at rendezvous endpoint node1, ports 29400, 29401, 29402, 29403 and 28 more: " +
				"connect to the job's store at 10.0.0.1:29400: nobody listens there",
			"(and 18 more like it); the store at 10.0.0.1:29405 refuses: another job; of xxx", "...; boom; and 11 more",
		}},
		{"taken", taken.Error(), []string{
			"no port of rendezvous endpoint node1 can be used: 29400: address already in use, and connect to",
			"; and 11 more",
		}},
	} {
		if n := len(tt.text); n > 1000 || strings.Contains(tt.text, "\n") {
			t.Errorf("%s has %d bytes: %s", tt.name, n, tt.text)
		}
		for _, want := range tt.want {
			if !strings.Contains(tt.text, want) {
				t.Errorf("%s does not say %q: %s", tt.name, want, tt.text)
			}
		}
	}
}
