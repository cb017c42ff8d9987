package machine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestResolve(t *testing.T) {
	none := func(context.Context, string, string) ([]netip.Addr, error) {
		return nil, errors.New("the name service was asked")
	}
	gives := func(found ...string) lookupFunc {
		return func(context.Context, string, string) ([]netip.Addr, error) { return addrs(found...), nil }
	}
	tests := []struct {
		host string
		look lookupFunc
		want []netip.Addr
	}{
		{"", none, addrs("127.0.0.1", "::1")},
		{"localhost", none, addrs("127.0.0.1", "::1")},
		{"LocalHost", none, addrs("127.0.0.1", "::1")},
		{"localhost.", none, addrs("127.0.0.1", "::1")},
		{"10.0.0.1", none, addrs("10.0.0.1")},
		{"::ffff:10.0.0.1", none, addrs("10.0.0.1")},
		{"fe80::1%eth0", none, addrs("fe80::1%eth0")},
		{"head", gives("10.0.0.1"), addrs("10.0.0.1")},
		{"head", gives("fd00::1", "::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"), addrs("fd00::1", "10.0.0.1", "10.0.0.2")},
	}
	for _, tt := range tests {
		got, err := resolve(t.Context(), tt.host, 29400, tt.look)
		want := Endpoint{Host: tt.host, Port: 29400, Addrs: tt.want}
		if diff := cmp.Diff(want, got, sameAddr); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", tt.host, err, diff)
		}
	}
}

func TestResolveFails(t *testing.T) {
	const head = `the endpoint's host "head" cannot be resolved: `
	const check = "; check that the name is spelled right and that this machine can look it up (getent hosts head), or " +
		"use an address"
	tests := []struct {
		name string
		look lookupFunc
		want string
	}{
		{"unknown", func(context.Context, string, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "head", IsNotFound: true}
		}, head + `the name "head" is not known to the name service` + check},
		{
			"empty", func(context.Context, string, string) ([]netip.Addr, error) { return nil, nil },
			head + "it has no address" + check,
		},
		{"hanging", func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, &net.DNSError{Err: "i/o timeout", Name: "head"}
		}, head + "the name service did not answer in 5s" + check},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := resolve(t.Context(), "head", 1, tt.look)
				if err == nil || err.Error() != tt.want || !errors.Is(err, rdzv.ErrConnection) {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				if took := time.Since(began); took > resolveTimeout {
					t.Errorf("took %v", took)
				}
			})
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	cancel(stop)
	_, err := resolve(ctx, "head", 1, func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		return nil,
			ctx.Err()
	})
	if !errors.Is(err, stop) || errors.Is(err, rdzv.ErrConnection) {
		t.Errorf("after cancel: %v", err)
	}
}

func TestInterfaces(t *testing.T) {
	ifaces, err := Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	loopback := netip.MustParseAddr("127.0.0.1")
	for _, i := range ifaces {
		for _, addr := range i.Addrs {
			if addr == loopback && i.Up && i.Name != "" {
				return
			}
		}
	}
	t.Errorf("no interface that is up has 127.0.0.1: %+v", ifaces)
}

// twoNetworks are the interfaces of a machine in two networks, with one interface down.
func twoNetworks() []Interface {
	return []Interface{
		{Name: "lo", Up: true, Addrs: addrs("127.0.0.1", "::1")},
		{Name: "eth0", Up: true, Addrs: addrs("10.0.0.1", "fd00::1", "fe80::1")},
		{Name: "ib0", Up: true, Addrs: addrs("192.168.0.1")},
		{Name: "eth9", Addrs: addrs("10.9.0.1")},
	}
}

func TestLocal(t *testing.T) {
	for in, want := range map[string]bool{
		"10.0.0.1": true, "192.168.0.1": true, "10.0.0.2": false, "10.9.0.1": false, "::ffff:10.0.0.1": true,
		"fd00::1": true, "fd00::2": false,
		"127.0.0.1": true, "127.0.1.1": true, "::1": true, "0.0.0.0": true, "::": true,
		"fe80::1%eth0": true, "fe80::1%ib0": false, "fe80::1": true,
	} {
		if got := len(LocalAddrs(addrs(in), twoNetworks())) == 1; got != want {
			t.Errorf("%s: local %v, want %v", in, got, want)
		}
	}
	if diff := cmp.Diff(addrs("192.168.0.1", "10.0.0.1"), LocalAddrs(addrs("10.0.0.3", "192.168.0.1", "10.0.0.2",
		"10.0.0.1"), twoNetworks()), sameAddr); diff != "" {
		t.Errorf("of several (-want +got):\n%s", diff)
	}
	if got := LocalAddrs(addrs("10.0.0.1"), nil); got != nil {
		t.Errorf("without interfaces: %v", got)
	}
}

func TestOffers(t *testing.T) {
	alone := []Interface{{Name: "lo", Up: true, Addrs: addrs("127.0.0.1", "::1")}}
	var many []Interface
	for i := range 20 {
		many = append(many, Interface{Up: true, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	linkLocal := []Interface{{Up: true, Addrs: addrs("fe80::1", "169.254.0.1", "224.0.0.1", "0.0.0.0")}, alone[0]}
	tests := []struct {
		name      string
		localAddr string
		conn      string
		ifaces    []Interface
		want      []string
	}{
		{"the connection's first", "", "192.168.0.1", twoNetworks(), []string{"192.168.0.1", "10.0.0.1", "fd00::1"}},
		{
			"--local-addr before it", "node7", "192.168.0.1", twoNetworks(),
			[]string{"node7", "192.168.0.1", "10.0.0.1", "fd00::1"},
		},
		{
			"--local-addr is the connection's", "192.168.0.1", "::ffff:192.168.0.1", twoNetworks(),
			[]string{"192.168.0.1", "10.0.0.1", "fd00::1"},
		},
		{"no connection", "", "", twoNetworks(), []string{"10.0.0.1", "fd00::1", "192.168.0.1"}},
		{"bound to every address", "", "0.0.0.0", twoNetworks(), []string{"10.0.0.1", "fd00::1", "192.168.0.1"}},
		{
			"agents of one machine", "", "127.0.0.1", twoNetworks(),
			[]string{"127.0.0.1", "10.0.0.1", "fd00::1", "192.168.0.1"},
		},
		{"no network", "", "", alone, []string{"127.0.0.1", "::1"}},
		{"no network, IPv6", "", "::1", alone, []string{"::1", "127.0.0.1"}},
		{"no network, --local-addr", "127.0.0.5", "", alone, []string{"127.0.0.5", "127.0.0.1", "::1"}},
		{"no network but a name", "node7", "", alone, []string{"node7"}},
		{"a network that has gone", "", "10.0.0.1", alone, []string{"10.0.0.1"}},
		{"link-local", "", "", linkLocal, []string{"127.0.0.1", "::1"}},
		{"link-local in use", "", "169.254.0.1", linkLocal, []string{"169.254.0.1"}},
		{"many", "", "10.0.0.3", many, []string{
			"10.0.0.3", "10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5",
			"10.0.0.6", "10.0.0.7",
		}},
		{"nothing at all", "", "", nil, nil},
	}
	for _, tt := range tests {
		var conn netip.Addr
		if tt.conn != "" {
			conn = netip.MustParseAddr(tt.conn)
		}
		if diff := cmp.Diff(tt.want, Offers(tt.localAddr, conn, tt.ifaces)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
