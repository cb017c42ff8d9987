package preview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// probeTimeout bounds a name lookup, a connection and a reply, each.
const probeTimeout = 2 * time.Second

// Endpoint is a candidate endpoint of the rendezvous, and what was found there.
type Endpoint struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	// Socket is the Unix socket of a local endpoint, which has no port; else empty.
	Socket string `json:"socket,omitempty"`
	// Problem says why the host has no addresses; empty if it has some.
	Problem   string    `json:"problem,omitempty"`
	Addresses []Address `json:"addresses"`
}

// Address is one address of an endpoint.
type Address struct {
	Addr netip.Addr `json:"address"`
	// Local reports whether the address is this machine's.
	Local bool `json:"local"`
	// State is one of the State constants; Detail is one line for people.
	State  string `json:"state"`
	Detail string `json:"detail"`
	// Store describes the store of elasticrun that replied; nil if none did.
	Store *StoreInfo `json:"store,omitempty"`
	// Err is the error that a launch would get when it connects; nil for none.
	Err error `json:"-"`
}

// StoreInfo describes a coordination store.
type StoreInfo struct {
	Version string `json:"elasticrun_version"`
	RunID   string `json:"run_id"` // empty: it serves any run
	Agents  int    `json:"agents"` // of this run, without one in the store's own process
	// RoundTrip and ClockOffset are in seconds. The store's clock is ahead of this machine's by ClockOffset, plus or
	// minus half of RoundTrip.
	RoundTrip   float64 `json:"round_trip"`
	ClockOffset float64 `json:"clock_offset"`
}

// States of an address.
const (
	StateThisRun        = "this-run"
	StateAnyRun         = "any-run" // elasticrun store
	StateOtherRun       = "other-run"
	StateOtherVersion   = "other-version" // of elasticrun, or of its protocol
	StateOtherSecret    = "other-secret"
	StateCertificate    = "certificate" // one side does not accept the other's
	StateNobody         = "nobody"      // the connection is refused
	StateTimedOut       = "timed-out"
	StateSilent         = "silent" // connected, but no reply
	StateBusy           = "busy"
	StateTorch          = "torch-store"
	StateUnknownProgram = "stranger"
	StateUnreachable    = "unreachable"
	StateListens        = "listens"        // etcd, which gets no further request
	stateNotClassified  = "not-classified" // an error without a case of its own
)

// probeFunc finds out what listens at an address, HOST:PORT. Outside tests it is connectOnly, or [coord.Probe] with the
// job's options. Every error is one of theirs.
type probeFunc func(ctx context.Context, addr string) (coord.ProbeResult, error)

// connectOnly is a probeFunc that only connects.
func connectOnly(ctx context.Context, addr string) (coord.ProbeResult, error) {
	return coord.ProbeResult{}, coord.Connect(ctx, coord.DialOptions{Addr: addr, Timeout: probeTimeout})
}

// probeAll finds out what listens at the endpoints now: at all addresses at once, each within a few seconds. It joins
// nothing.
func probeAll(ctx context.Context, at []config.HostPort, probe probeFunc) ([]Endpoint, error) {
	ifaces, err := machine.Interfaces()
	if err != nil {
		return nil, err
	}
	found := make([]Endpoint, len(at))
	var probes sync.WaitGroup
	for i, e := range at {
		probes.Go(func() { found[i] = probeEndpoint(ctx, e, ifaces, probe) })
	}
	probes.Wait()
	return found, ctx.Err()
}

func probeEndpoint(ctx context.Context, at config.HostPort, ifaces []machine.Interface, probe probeFunc) Endpoint {
	e := Endpoint{Host: at.Host, Port: at.Port, Addresses: []Address{}}
	bounded, cancel := context.WithTimeoutCause(ctx, probeTimeout,
		fmt.Errorf("the name service did not reply within %s", seconds.Format(probeTimeout)))
	defer cancel()
	resolved, err := machine.Resolve(bounded, at.Host, at.Port)
	if err != nil {
		e.Problem = err.Error()
		return e
	}
	e.Addresses = make([]Address, len(resolved.Addrs))
	var probes sync.WaitGroup
	for i, addr := range resolved.Addrs {
		local := len(machine.LocalAddrs([]netip.Addr{addr}, ifaces)) > 0
		probes.Go(func() {
			found, err := probe(ctx, net.JoinHostPort(addr.String(), strconv.Itoa(at.Port)))
			e.Addresses[i] = classify(addr, local, found, err)
		})
	}
	probes.Wait()
	return e
}

// probeSocket finds out whether a store listens at a Unix socket.
func probeSocket(ctx context.Context, socket string, opts coord.DialOptions) Endpoint {
	at := elastic.LocalDialOptions(socket)
	opts.Addr, opts.Conn = at.Addr, at.Conn
	found, err := coord.Probe(ctx, opts)
	a := classify(netip.Addr{}, true, found, err)
	if errors.Is(err, syscall.ENOENT) {
		a.State, a.Detail = StateNobody, "nobody listens there"
	}
	return Endpoint{Host: config.LocalEndpoint, Socket: socket, Addresses: []Address{a}}
}

// storeFound reports whether one of the endpoints has a store that would admit this run's agents.
func storeFound(endpoints []Endpoint) bool {
	for _, e := range endpoints {
		for _, a := range e.Addresses {
			if a.State == StateThisRun || a.State == StateAnyRun {
				return true
			}
		}
	}
	return false
}

// classify turns the result of a probe into an Address.
func classify(addr netip.Addr, local bool, s coord.ProbeResult, err error) Address {
	a := Address{Addr: addr, Local: local, Err: err}
	if err != nil {
		a.State, a.Detail = stateOf(err)
		return a
	}
	if s == (coord.ProbeResult{}) {
		a.State, a.Detail = StateListens, "something listens there"
		return a
	}
	a.Store = &StoreInfo{
		Version: s.Version, RunID: s.RunID, Agents: s.Agents,
		RoundTrip: s.RoundTrip.Seconds(), ClockOffset: s.Offset.Seconds(),
	}
	agents := plural.Of(s.Agents, "agent")
	a.State, a.Detail = StateThisRun, fmt.Sprintf("the store of this run, with %s besides its host", agents)
	if s.RunID == "" {
		a.State, a.Detail = StateAnyRun, fmt.Sprintf("a store for any run; it has %s of this one", agents)
	}
	return a
}

// stateOf classifies the error that a launch would get.
func stateOf(err error) (state, detail string) {
	if refused, ok := errors.AsType[*coord.RefusedError](err); ok {
		state = map[coord.Reason]string{
			coord.ReasonRunID: StateOtherRun, coord.ReasonVersion: StateOtherVersion, coord.ReasonProtocol: StateOtherVersion,
			coord.ReasonSecret: StateOtherSecret, coord.ReasonCertificate: StateCertificate,
			coord.ReasonStoreCertificate: StateCertificate,
		}[refused.Reason]
		return state, refused.Message
	}
	if obstacle, ok := errors.AsType[*coord.DialError](err); ok {
		state = map[coord.Obstacle]string{
			coord.ObstacleConnect: StateUnreachable, coord.ObstacleRefused: StateNobody, coord.ObstacleTimeout: StateTimedOut,
			coord.ObstacleSilent: StateSilent, coord.ObstacleClosed: StateUnknownProgram, coord.ObstacleBusy: StateBusy,
			coord.ObstacleTorch: StateTorch, coord.ObstacleForeign: StateUnknownProgram,
			coord.ObstacleRejected: StateCertificate, coord.ObstacleElsewhere: StateBusy,
		}[obstacle.Obstacle]
		if state == StateUnreachable && obstacle.Err != nil {
			return state, obstacle.Message + ": " + obstacle.Err.Error()
		}
		return state, obstacle.Message
	}
	return stateNotClassified, err.Error()
}
