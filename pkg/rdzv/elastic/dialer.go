package elastic

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// endpointDialer dials the store of one session. It uses the address that the endpoint had when the session began. If
// that address has failed for as long as a session lives, it also tries the other addresses that the endpoint's name
// resolves to now: the pod that hosts the store may have been replaced, for example. The handshake then shows which
// store answers. An endpointDialer belongs to one goroutine at a time.
type endpointDialer struct {
	addr    netip.AddrPort
	after   time.Duration // how long addr must fail before other addresses are tried
	connect func(ctx context.Context, addr string) (net.Conn, error)
	resolve func(ctx context.Context) ([]netip.Addr, error) // resolves the endpoint; nil if it is no name
	failing time.Time                                       // since when addr has failed; zero while it works
}

// knownAddrTimeout bounds the dial of an address that has failed for long, so that time is left for the others.
const knownAddrTimeout = 2 * time.Second

// dial opens a connection. Its error is that of addr.
func (d *endpointDialer) dial(ctx context.Context) (net.Conn, error) {
	other := d.resolve != nil && !d.failing.IsZero() && time.Since(d.failing) >= d.after
	first, cancel := ctx, context.CancelFunc(func() {})
	if other {
		first, cancel = context.WithTimeout(ctx, knownAddrTimeout)
	}
	defer cancel()
	c, err := d.connect(first, d.addr.String())
	if err == nil {
		d.failing = time.Time{}
		return c, nil
	}
	if d.failing.IsZero() {
		d.failing = time.Now()
	}
	if !other {
		return nil, err
	}
	addrs, resolveErr := d.resolve(ctx)
	if resolveErr != nil {
		return nil, err
	}
	for _, addr := range addrs {
		to := netip.AddrPortFrom(addr, d.addr.Port())
		if to == d.addr {
			continue
		}
		if c, err := d.connect(ctx, to.String()); err == nil {
			d.addr, d.failing = to, time.Time{}
			return c, nil
		}
	}
	return nil, err
}

// dialerTo returns a dialer for one address of an endpoint.
func (a *C10d) dialerTo(e machine.Endpoint, addr netip.Addr) *endpointDialer {
	d := &endpointDialer{addr: netip.AddrPortFrom(addr, uint16(e.Port)), after: a.TTL, connect: a.Connect}
	if d.connect == nil {
		d.connect = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if machine.IsName(e.Host) {
		d.resolve = func(ctx context.Context) ([]netip.Addr, error) {
			now, err := machine.Resolve(ctx, e.Host, e.Port)
			return now.Addrs, err
		}
	}
	return d
}
