package preview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// TestClassify checks the state of each result of a probe, and whether a launch would be refused.
func TestClassify(t *testing.T) {
	t.Parallel()
	obstacle := func(o coord.Obstacle) error {
		return &coord.DialError{Addr: "a", Obstacle: o, Message: "line"}
	}
	refusal := func(r coord.Reason) error { return &coord.RefusedError{Addr: "a", Reason: r, Message: "line"} }
	for _, tc := range []struct {
		name    string
		seen    coord.ProbeResult
		err     error
		state   string
		refused bool
	}{
		{name: "this run's store", seen: coord.ProbeResult{RunID: "job", RoundTrip: 1}, state: StateThisRun},
		{name: "a store of any run", seen: coord.ProbeResult{RoundTrip: 1}, state: StateAnyRun},
		{name: "etcd", state: StateListens},
		{name: "another run's", err: refusal(coord.ReasonRunID), state: StateOtherRun, refused: true},
		{name: "another version's", err: refusal(coord.ReasonVersion), state: StateOtherVersion, refused: true},
		{name: "another protocol's", err: refusal(coord.ReasonProtocol), state: StateOtherVersion, refused: true},
		{name: "another secret's", err: refusal(coord.ReasonSecret), state: StateOtherSecret, refused: true},
		{name: "torch", err: obstacle(coord.ObstacleTorch), state: StateTorch, refused: true},
		{name: "another program", err: obstacle(coord.ObstacleForeign), state: StateUnknownProgram, refused: true},
		{name: "closed", err: obstacle(coord.ObstacleClosed), state: StateUnknownProgram},
		{name: "nobody", err: obstacle(coord.ObstacleRefused), state: StateNobody},
		{name: "time", err: obstacle(coord.ObstacleTimeout), state: StateTimedOut},
		{name: "silence", err: obstacle(coord.ObstacleSilent), state: StateSilent},
		{name: "busy", err: obstacle(coord.ObstacleBusy), state: StateBusy},
		{name: "a member that does not serve", err: obstacle(coord.ObstacleElsewhere), state: StateBusy},
		{name: "no route", err: obstacle(coord.ObstacleConnect), state: StateUnreachable},
		{name: "something else", err: errors.New("what"), state: stateNotClassified, refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := classify(netip.MustParseAddr("10.0.0.2"), false, tc.seen, tc.err)
			if a.State != tc.state || a.Detail == "" {
				t.Errorf("state %q (%s), want %q", a.State, a.Detail, tc.state)
			}
			c := &config.Config{MaxNodes: 2, RunID: "job", Rendezvous: config.Rendezvous{Backend: rdzv.BackendC10d, Hint: -1}}
			err := Refusal(c, []Endpoint{{Host: "h", Port: 1, Addresses: []Address{a}}})
			if (err != nil) != tc.refused {
				t.Errorf("refused with %v", err)
			}
			r := rendezvous(c, []Endpoint{{Host: "h", Port: 1, Addresses: []Address{a}}})
			if known := !strings.HasPrefix(r.Admission, "unknown: "); known == tc.refused {
				t.Errorf("admission %q", r.Admission)
			}
		})
	}
}

// TestProbeAsksEachAddress checks that both addresses of localhost are probed, and that a name without addresses has a
// problem.
func TestProbeAsksEachAddress(t *testing.T) {
	t.Parallel()
	ask := func(_ context.Context, addr string) (coord.ProbeResult, error) {
		return coord.ProbeResult{RunID: addr, RoundTrip: time.Second}, nil
	}
	found, err := probeAll(t.Context(), []config.HostPort{
		{Host: "localhost", Port: 29400},
		{Host: "name.invalid", Port: 1},
	}, ask)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(found[0].Addresses[0].Store.RunID, " ", found[0].Addresses[1].Store.RunID, " ",
		found[0].Addresses[1].Local)
	if want := "127.0.0.1:29400 [::1]:29400 true"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if len(found[1].Addresses) > 0 || found[1].Problem == "" {
		t.Errorf("a name that does not exist: %+v", found[1])
	}
}

// TestConnect checks that connectOnly finds out whether something listens, and sends nothing.
func TestConnect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if seen, err := connectOnly(t.Context(), addr); err != nil || seen != (coord.ProbeResult{}) {
		t.Errorf("%+v, %v where something listens", seen, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = connectOnly(t.Context(), addr)
	if state, _ := stateOf(err); state != StateNobody {
		t.Errorf("%s (%v) where nobody listens", state, err)
	}
}
