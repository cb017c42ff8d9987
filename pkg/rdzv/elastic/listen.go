package elastic

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
	"syscall"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Choice says whether this agent may host the store, and where it would listen.
type Choice struct {
	// Candidate tells that it may. Whether it does is decided by who binds the port first.
	Candidate bool
	// Addr is where to listen; zero for every address of this machine.
	Addr netip.Addr
	Port int
}

// HostChoice finds out whether this agent may host the store at e: it may if e is this machine. Names are never compared.
// Where e has several addresses, of which some are this machine's and some are not, the others may be another network
// of this machine or other machines; then the node whose hint is 0 hosts, and where hints are not given (-1) the
// error says what to do. isHost, unless nil, overrides all that.
func HostChoice(e Endpoint, ifaces []Interface, isHost *bool, hint int) (Choice, error) {
	local := Local(e.Addrs, ifaces)
	others := slices.DeleteFunc(slices.Clone(e.Addrs), func(addr netip.Addr) bool { return slices.Contains(local, addr) })
	c := Choice{Port: e.Port}
	switch {
	case isHost != nil:
		c.Candidate = *isHost
	case len(local) == 0:
	case len(others) == 0 || hint == 0:
		c.Candidate = true
	case hint < 0:
		return Choice{}, fmt.Errorf("the endpoint's host %q has addresses of this machine (%s) and others (%s), "+
			"so it cannot be told who hosts the store: name one machine, or give --node-rank on every node (0 hosts), "+
			"or --rdzv-conf=is_host=true on one node and is_host=false on the others",
			e.Host, joinAddrs(local), joinAddrs(others))
	}
	// A name may mean other addresses on other machines, such as 127.0.1.1 on the one that has the name, and an address
	// of another network elsewhere. So only an address says over which network agents come.
	if c.Candidate && !isName(e.Host) && len(local) > 0 {
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

// Bind listens as a candidate. An error wraps [rdzv.ErrConnection] and the system's: EADDRINUSE says that somebody has
// the port already, another agent of this machine or a stranger, which dialling it will tell.
func Bind(ctx context.Context, c Choice) (net.Listener, error) {
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
	return nil, fmt.Errorf("%w: listen for agents on %s: %w", rdzv.ErrConnection, at, systemError(err))
}

// claim notes on this machine that this process hosts the store of a run at a port. The error is EADDRINUSE where another one does: at another
// address, since both have bound theirs.
func claim(runID string, port int) (io.Closer, error) {
	return takeSlot(slotName(runID, "store:"+strconv.Itoa(port), 0))
}

// claimRun takes, on this machine, the right to host the store of a run, at whatever port. The error is EADDRINUSE where another agent has it.
func claimRun(runID string) (io.Closer, error) { return takeSlot(slotName(runID, "store", 0)) }

// systemError takes off what package net says of the address, which is in the message already.
func systemError(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// Ports is a range of ports, both ends in it. The zero value is any free port.
type Ports struct{ Low, High int }

// String returns N or LO-HI.
func (p Ports) String() string {
	if p.Low == p.High {
		return strconv.Itoa(p.Low)
	}
	return fmt.Sprintf("%d-%d", p.Low, p.High)
}

// ListenWorkerStore listens on the first free port of a range, at the address bind or, where that is empty, at every
// address of this machine. Its errors are *[rdzv.ListenError], with the range's first port where all are taken.
func ListenWorkerStore(ctx context.Context, ports Ports, bind string) (net.Listener, error) {
	var err error
	for port := ports.Low; port <= ports.High; port++ {
		var l net.Listener
		if l, err = tcplisten.Listen(ctx, bind, port); err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, &rdzv.ListenError{Addr: bind, Port: port, Err: systemError(err)}
		}
	}
	if err = systemError(err); ports.Low != ports.High {
		err = fmt.Errorf("no port of %s is free: %w", ports, err)
	}
	return nil, &rdzv.ListenError{Addr: bind, Port: ports.Low, Err: err}
}
