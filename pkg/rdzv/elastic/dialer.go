package elastic

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// way is the way of one session to its store: the address that its endpoint had when it began. Where that has not answered for as long as a session
// lives, the endpoint's name may have come to mean another one, as when the pod that hosts the store was replaced. Which store is there, the
// handshake tells. It is used by one goroutine at a time.
type endpointDialer struct {
	addr    netip.AddrPort
	after   time.Duration // how long the address must have failed
	connect func(ctx context.Context, addr string) (net.Conn, error)
	look    func(ctx context.Context) ([]netip.Addr, error) // what the endpoint means now; nil: it cannot mean anything else
	failing time.Time                                       // since when the address has failed
}

// wayPatience is how long an address that has failed for long may take, so that there is time for others.
const knownAddrTimeout = 2 * time.Second

// dial makes a connection. Its error is that of the address it had before.
func (w *endpointDialer) dial(ctx context.Context) (net.Conn, error) {
	other := w.look != nil && !w.failing.IsZero() && time.Since(w.failing) >= w.after
	first, cancel := ctx, context.CancelFunc(func() {})
	if other {
		first, cancel = context.WithTimeout(ctx, knownAddrTimeout)
	}
	defer cancel()
	c, err := w.connect(first, w.addr.String())
	if err == nil {
		w.failing = time.Time{}
		return c, nil
	}
	if w.failing.IsZero() {
		w.failing = time.Now()
	}
	if !other {
		return nil, err
	}
	addrs, lookErr := w.look(ctx)
	if lookErr != nil {
		return nil, err
	}
	for _, addr := range addrs {
		to := netip.AddrPortFrom(addr, w.addr.Port())
		if to == w.addr {
			continue
		}
		if c, err := w.connect(ctx, to.String()); err == nil {
			w.addr, w.failing = to, time.Time{}
			return c, nil
		}
	}
	return nil, err
}

// wayTo is the way to one address of an endpoint.
func (a *C10d) dialerTo(e Endpoint, addr netip.Addr) *endpointDialer {
	w := &endpointDialer{addr: netip.AddrPortFrom(addr, uint16(e.Port)), after: a.TTL, connect: a.Connect}
	if w.connect == nil {
		w.connect = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if isName(e.Host) {
		w.look = func(ctx context.Context) ([]netip.Addr, error) {
			now, err := Resolve(ctx, e.Host, e.Port)
			return now.Addrs, err
		}
	}
	return w
}
