package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/internal/plainerr"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Endpoint is where agents find the store.
type Endpoint struct {
	// Host is the name or address as it was given, without brackets.
	Host string
	// Port is above 0.
	Port int
	// Addrs are Host's addresses, at least one, in the order of preference. Several addresses may belong to one machine
	// or to several.
	Addrs []netip.Addr
}

// String returns host and port as they were given.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// resolveTimeout bounds a lookup.
const resolveTimeout = 5 * time.Second

// Resolve finds the addresses of host, a name or an address; an empty host is localhost. It looks up only names other
// than localhost, so a job on one machine, or one that uses addresses, does not depend on the name service. The error
// wraps [rdzv.ErrConnection], since the name may be known later, or the cause of ctx if ctx ends.
func Resolve(ctx context.Context, host string, port int) (Endpoint, error) {
	return resolve(ctx, host, port, net.DefaultResolver.LookupNetIP)
}

func isLocalhost(host string) bool { return host == "" || rdzvconf.IsLocalhost(host) }

// IsName reports whether host has to be looked up.
func IsName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && !isLocalhost(host)
}

// lookupFunc is [net.Resolver.LookupNetIP].
type lookupFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

func resolve(ctx context.Context, host string, port int, look lookupFunc) (Endpoint, error) {
	e := Endpoint{Host: host, Port: port}
	if isLocalhost(host) {
		e.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
		return e, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		e.Addrs = []netip.Addr{addr.Unmap()}
		return e, nil
	}
	within, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := look(within, "ip", host)
	switch {
	case ctx.Err() != nil:
		return Endpoint{}, fmt.Errorf("look up %q: %w", host, context.Cause(ctx))
	case within.Err() != nil:
		err = fmt.Errorf("the name service did not answer in %s", seconds.Format(resolveTimeout))
	case err == nil && len(found) == 0:
		err = errors.New("it has no address")
	}
	if err != nil {
		return Endpoint{}, &unresolvedError{host: host, err: err}
	}
	for _, addr := range found {
		if addr = addr.Unmap(); !slices.Contains(e.Addrs, addr) {
			e.Addrs = append(e.Addrs, addr)
		}
	}
	return e, nil
}

// unresolvedError says that the host of an endpoint has no known address.
type unresolvedError struct {
	host string
	err  error
}

func (u *unresolvedError) Error() string {
	return fmt.Sprintf("the endpoint's host %q cannot be resolved: %s; check that the name is spelled right and that "+
		"this machine can look it up (getent hosts %s), or use an address", u.host, plainerr.Text(u.err), u.host)
}

// Unwrap returns [rdzv.ErrConnection], since the name may be known later.
func (u *unresolvedError) Unwrap() error { return rdzv.ErrConnection }

// Interface is a network interface of this machine.
type Interface struct {
	Name string
	Up   bool
	// Addrs carry no zone.
	Addrs []netip.Addr
}

// Interfaces returns this machine's interfaces, in the kernel's order.
func Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	found := make([]Interface, 0, len(all))
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has disappeared
		}
		own := Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
				own.Addrs = append(own.Addrs, prefix.Addr().Unmap())
			}
		}
		found = append(found, own)
	}
	return found, nil
}

// LocalAddrs returns those of addrs that are this machine's own: the addresses of interfaces that are up, and the
// addresses that mean this machine everywhere (127.0.0.0/8, ::1, 0.0.0.0, ::).
func LocalAddrs(addrs []netip.Addr, ifaces []Interface) []netip.Addr {
	var local []netip.Addr
	for _, addr := range addrs {
		has := func(i Interface) bool {
			inZone := addr.Zone() == "" || addr.Zone() == i.Name
			return i.Up && inZone && slices.Contains(i.Addrs, addr.Unmap().WithZone(""))
		}
		if addr.Unmap().IsLoopback() || addr.Unmap().IsUnspecified() || slices.ContainsFunc(ifaces, has) {
			local = append(local, addr)
		}
	}
	return local
}

// maxOffers bounds the addresses in an agent's report.
const maxOffers = 8

// Offers lists the addresses at which other nodes may reach this node's worker store, likeliest first, at most 8. The
// first is localAddr (--local-addr), unless it is empty. The next is storeConn, the local address of this node's
// connection to the agents' store, unless it is zero. The others are the addresses of the interfaces. Loopback
// addresses of interfaces are listed only if all others are loopback too. Link-local addresses are never listed, since
// they mean nothing without a zone, and zones differ between machines.
func Offers(localAddr string, storeConn netip.Addr, ifaces []Interface) []string {
	var offers []string
	add := func(s string) {
		if s != "" && len(offers) < maxOffers && !slices.Contains(offers, s) {
			offers = append(offers, s)
		}
	}
	onlyLoopback := true
	if addr, err := netip.ParseAddr(localAddr); localAddr != "" {
		add(localAddr)
		onlyLoopback = err == nil && addr.IsLoopback()
	}
	if storeConn = storeConn.Unmap(); storeConn.IsValid() && !storeConn.IsUnspecified() {
		add(storeConn.String())
		onlyLoopback = onlyLoopback && storeConn.IsLoopback()
	}
	var global, loopback []netip.Addr
	for _, i := range ifaces {
		for _, addr := range i.Addrs {
			switch {
			case !i.Up:
			case addr.IsLoopback():
				loopback = append(loopback, addr)
			case addr.IsGlobalUnicast():
				global = append(global, addr)
			}
		}
	}
	if onlyLoopback && len(global) == 0 {
		global = loopback
	}
	for _, addr := range global {
		add(addr.String())
	}
	return offers
}

// IsReachable reports whether other machines may reach a listener at this address.
func IsReachable(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
