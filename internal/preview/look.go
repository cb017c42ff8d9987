package preview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// LookBound is how long a name service, a connection and an answer may take each.
const LookBound = 2 * time.Second

// Endpoint is one place where nodes meet, and what was found there.
type Endpoint struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	// Problem is why the host has no addresses; empty where it has.
	Problem   string    `json:"problem,omitempty"`
	Addresses []Address `json:"addresses"`
}

// Address is one address of an endpoint.
type Address struct {
	Addr netip.Addr `json:"address"`
	// Local says that it is this machine's.
	Local bool `json:"local"`
	// State is one of StateNobody and its like; Detail is one line for people.
	State  string `json:"state"`
	Detail string `json:"detail"`
	// Seen is what a store of elasticrun's told; nil where none was seen.
	Seen *Seen `json:"store,omitempty"`
	// Err is what a launch would be told when it connects; nil for nothing.
	Err error `json:"-"`
}

// Seen is a store of elasticrun's.
type Seen struct {
	Version string `json:"elasticrun_version"`
	RunID   string `json:"run_id"` // empty: it serves any run
	Agents  int    `json:"agents"` // of this run, beside one in the store's own process
	// RoundTrip and ClockOffset are in seconds; the clock is ahead of this machine's by ClockOffset, give or take half a RoundTrip.
	RoundTrip   float64 `json:"round_trip"`
	ClockOffset float64 `json:"clock_offset"`
}

// What is at an address.
const (
	StateThisRun       = "this-run"
	StateAnyRun        = "any-run" // elasticrun store
	StateOtherRun      = "other-run"
	StateOtherVersion  = "other-version" // of elasticrun, or of its protocol
	StateOtherSecret   = "other-secret"
	StateNobody        = "nobody" // refused: nobody listens
	StateTimedOut      = "timed-out"
	StateSilent        = "silent" // connected, without an answer
	StateBusy          = "busy"
	StateTorch         = "torch-store"
	StateStranger      = "stranger"
	StateUnreachable   = "unreachable"
	StateListens       = "listens"        // etcd, which is not asked further
	stateNotClassified = "not-classified" // an error that no case is written for
)

// Asker asks what is at an address, HOST:PORT; [coord.Look] with the job's options is the real one. An error is one of its.
type Asker func(ctx context.Context, addr string) (coord.ProbeResult, error)

// Connects is an Asker that only connects.
func Connects(ctx context.Context, addr string) (coord.ProbeResult, error) {
	return coord.ProbeResult{}, coord.Connect(ctx, coord.DialOptions{Addr: addr, Timeout: LookBound})
}

// Look finds out what is at the endpoints now: all addresses at once, each within a few seconds. It joins nothing.
func Look(ctx context.Context, at []config.HostPort, ask Asker) ([]Endpoint, error) {
	ifaces, err := elastic.Interfaces()
	if err != nil {
		return nil, err
	}
	found := make([]Endpoint, len(at))
	var asking sync.WaitGroup
	for i, e := range at {
		asking.Go(func() { found[i] = lookAt(ctx, e, ifaces, ask) })
	}
	asking.Wait()
	return found, ctx.Err()
}

func lookAt(ctx context.Context, at config.HostPort, ifaces []elastic.Interface, ask Asker) Endpoint {
	e := Endpoint{Host: at.Host, Port: at.Port, Addresses: []Address{}}
	bounded, cancel := context.WithTimeoutCause(ctx, LookBound, fmt.Errorf("the name service gave no answer in %v", LookBound))
	defer cancel()
	resolved, err := elastic.Resolve(bounded, at.Host, at.Port)
	if err != nil {
		e.Problem = err.Error()
		return e
	}
	e.Addresses = make([]Address, len(resolved.Addrs))
	var asking sync.WaitGroup
	for i, addr := range resolved.Addrs {
		local := len(elastic.Local([]netip.Addr{addr}, ifaces)) > 0
		asking.Go(func() {
			seen, err := ask(ctx, net.JoinHostPort(addr.String(), strconv.Itoa(at.Port)))
			e.Addresses[i] = judge(addr, local, seen, err)
		})
	}
	asking.Wait()
	return e
}

// StoreThere tells whether a store of elasticrun's is at one of the endpoints that would let the run's agents in.
func StoreThere(at []Endpoint) bool {
	for _, e := range at {
		for _, a := range e.Addresses {
			if a.State == StateThisRun || a.State == StateAnyRun {
				return true
			}
		}
	}
	return false
}

// judge says what an answer means.
func judge(addr netip.Addr, local bool, s coord.ProbeResult, err error) Address {
	a := Address{Addr: addr, Local: local, Err: err}
	if err != nil {
		a.State, a.Detail = stateOf(err)
		return a
	}
	if s == (coord.ProbeResult{}) {
		a.State, a.Detail = StateListens, "something listens there"
		return a
	}
	a.Seen = &Seen{
		Version: s.Version, RunID: s.RunID, Agents: s.Agents,
		RoundTrip: s.RoundTrip.Seconds(), ClockOffset: s.Offset.Seconds(),
	}
	a.State, a.Detail = StateThisRun, fmt.Sprintf("the store of this run is there, with %s beside the one that hosts it", agents(s.Agents))
	if s.RunID == "" {
		a.State, a.Detail = StateAnyRun, fmt.Sprintf("a store is there that serves any run; of this one it has %s", agents(s.Agents))
	}
	return a
}

func agents(n int) string {
	if n == 1 {
		return "1 agent"
	}
	return fmt.Sprintf("%d agents", n)
}

// stateOf classifies what a launch would be told.
func stateOf(err error) (state, detail string) {
	if refused, ok := errors.AsType[*coord.RefusedError](err); ok {
		state = map[coord.Reason]string{
			coord.ReasonRunID: StateOtherRun, coord.ReasonVersion: StateOtherVersion, coord.ReasonProtocol: StateOtherVersion,
			coord.ReasonSecret: StateOtherSecret,
		}[refused.Reason]
		return state, refused.Message
	}
	if obstacle, ok := errors.AsType[*coord.DialError](err); ok {
		state = map[coord.Obstacle]string{
			coord.ObstacleConnect: StateUnreachable, coord.ObstacleRefused: StateNobody, coord.ObstacleTimeout: StateTimedOut,
			coord.ObstacleSilent: StateSilent, coord.ObstacleClosed: StateStranger, coord.ObstacleBusy: StateBusy,
			coord.ObstacleTorch: StateTorch, coord.ObstacleForeign: StateStranger,
		}[obstacle.Obstacle]
		if state == StateUnreachable && obstacle.Err != nil {
			return state, obstacle.Message + ": " + obstacle.Err.Error()
		}
		return state, obstacle.Message
	}
	return stateNotClassified, err.Error()
}
