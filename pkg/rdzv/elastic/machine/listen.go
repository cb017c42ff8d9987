package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// HostRole says whether this agent may host the store, and where it listens if it does.
type HostRole struct {
	// Candidate says that the agent may host the store. The candidate that binds the port first hosts it.
	Candidate bool
	// Addr is the address to listen at. Zero means every address of this machine.
	Addr netip.Addr
	Port int
}

// HostChoice decides whether this agent may host the store at e: it may if e is this machine. It never compares names.
// If only some of e's addresses are this machine's, the others may belong to another network of this machine or to
// other machines. Then the node whose hint is 0 hosts, and without hints (-1) the error says what to do. isHost, unless
// nil, overrides this rule.
func HostChoice(e Endpoint, ifaces []Interface, isHost *bool, hint int) (HostRole, error) {
	local := LocalAddrs(e.Addrs, ifaces)
	isLocal := func(addr netip.Addr) bool { return slices.Contains(local, addr) }
	others := slices.DeleteFunc(slices.Clone(e.Addrs), isLocal)
	c := HostRole{Port: e.Port}
	switch {
	case isHost != nil:
		c.Candidate = *isHost
	case len(local) == 0:
	case len(others) == 0 || hint == 0:
		c.Candidate = true
	case hint < 0:
		return HostRole{}, fmt.Errorf("the endpoint's host %q has addresses of this machine (%s) and others (%s), "+
			"so it is not clear which node hosts the store: name one machine, or set --node-rank on every node "+
			"(0 hosts), or --rdzv-conf=is_host=true on one node and is_host=false on the others",
			e.Host, joinAddrs(local), joinAddrs(others))
	}
	// A name may resolve to different addresses on different machines, such as 127.0.1.1 on the machine that has the
	// name. So only an address determines the network over which agents connect.
	if c.Candidate && !IsName(e.Host) && len(local) > 0 {
		c.Addr = local[0]
	}
	return c, nil
}

func joinAddrs(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	return strings.Join(texts, ", ")
}

// ListenHost listens as a candidate. The error wraps [rdzv.ErrConnection] and the system's error. EADDRINUSE means that
// another agent of this machine, or another program, has the port; the caller finds out which by dialing it.
func ListenHost(ctx context.Context, c HostRole) (net.Listener, error) {
	host := ""
	if c.Addr.IsValid() {
		host = c.Addr.String()
	}
	at := net.JoinHostPort(host, strconv.Itoa(c.Port))
	l, err := tcplisten.Listen(ctx, host, c.Port)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("listen for agents on %s: %w", at, context.Cause(ctx))
	}
	return nil, fmt.Errorf("%w: listen for agents on %s: %w", rdzv.ErrConnection, at, SystemError(err))
}

// Claim reserves, on this machine, the right to host the store of a run at a port. The caller has bound the port. The
// error is EADDRINUSE if another process has the claim, which then listens at another address of the same port.
func Claim(runID string, port int) (io.Closer, error) {
	return TakeSlot(SlotName(runID, "store:"+strconv.Itoa(port), 0))
}

// ClaimRun reserves, on this machine, the right to listen for the store of a run at any port of an endpoint, by its
// index. The error is EADDRINUSE if another agent has it.
func ClaimRun(runID string, index int) (io.Closer, error) {
	return TakeSlot(SlotName(runID, "store", index))
}

// Acceptor hands on the connections of a listener. Close it once.
type Acceptor struct {
	ln      net.Listener
	closing chan struct{}
	running sync.WaitGroup
}

// acceptPause is the pause after an error, such as that too many files are open. Such errors pass.
const acceptPause = 100 * time.Millisecond

// Accept hands each connection of ln to handle until Close. After an error, such as that too many files are open, it
// calls full, unless that is nil, and tries again.
func Accept(ln net.Listener, handle func(net.Conn), full func()) *Acceptor {
	a := &Acceptor{ln: ln, closing: make(chan struct{})}
	a.running.Go(func() {
		for {
			c, err := ln.Accept()
			switch {
			case err == nil:
				handle(c)
				continue
			case errors.Is(err, net.ErrClosed):
				return
			case full != nil:
				full()
			}
			select {
			case <-time.After(acceptPause):
			case <-a.closing:
			}
		}
	})
	return a
}

// Close ends the listener and waits until handle has returned.
func (a *Acceptor) Close() error {
	close(a.closing)
	err := a.ln.Close()
	a.running.Wait()
	return err
}

// SystemError returns the system's error without the address that package net adds. The message has the address
// already.
func SystemError(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// Ports is a range of ports that includes both ends. The zero value means any free port.
type Ports struct{ Low, High int }

// String returns N or LO-HI.
func (p Ports) String() string {
	if p.Low == p.High {
		return strconv.Itoa(p.Low)
	}
	return fmt.Sprintf("%d-%d", p.Low, p.High)
}

// ListenWorkerStore listens on the first free port of a range, at the address bind. An empty bind means every address
// of this machine. Its errors are *[rdzv.ListenError], with the range's first port if all ports are taken.
func ListenWorkerStore(ctx context.Context, ports Ports, bind string) (net.Listener, error) {
	var err error
	for port := ports.Low; port <= ports.High; port++ {
		var l net.Listener
		if l, err = tcplisten.Listen(ctx, bind, port); err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, &rdzv.ListenError{Addr: bind, Port: port, Err: SystemError(err)}
		}
	}
	if err = SystemError(err); ports.Low != ports.High {
		err = fmt.Errorf("no port of %s is free: %w", ports, err)
	}
	return nil, &rdzv.ListenError{Addr: bind, Port: ports.Low, Err: err}
}
