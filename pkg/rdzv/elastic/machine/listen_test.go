package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestHostChoice(t *testing.T) {
	yes, no := true, false
	const several = `the endpoint's host "head" has addresses of this machine (10.0.0.1) and others (10.0.0.2, 10.0.0.3), so it is not clear which node hosts the store: ` +
		"name one machine, or set --node-rank on every node (0 hosts), or --rdzv-conf=is_host=true on one node and is_host=false on the others"
	tests := []struct {
		name   string
		host   string
		addrs  []netip.Addr
		isHost *bool
		hint   int
		want   string // empty if not a candidate; * for every address
		err    string
	}{
		{name: "own address", host: "10.0.0.1", addrs: addrs("10.0.0.1"), want: "10.0.0.1"},
		{name: "own address, hint 3", host: "10.0.0.1", addrs: addrs("10.0.0.1"), hint: 3, want: "10.0.0.1"},
		{name: "another's address, hint 0", host: "10.0.0.2", addrs: addrs("10.0.0.2")},
		{name: "own address, not host", host: "10.0.0.1", addrs: addrs("10.0.0.1"), isHost: &no},
		{name: "own address, host", host: "10.0.0.1", addrs: addrs("10.0.0.1"), isHost: &yes, want: "10.0.0.1"},
		{
			name: "address before which stands a gateway", host: "203.0.113.1", addrs: addrs("203.0.113.1"), isHost: &yes,
			want: "*",
		},
		{name: "localhost", host: "localhost", addrs: addrs("127.0.0.1", "::1"), hint: -1, want: "127.0.0.1"},
		{name: "loopback address", host: "::1", addrs: addrs("::1"), want: "::1"},
		{name: "own name", host: "head", addrs: addrs("10.0.0.1"), want: "*"},
		{name: "own name, which is 127.0.1.1 here", host: "head", addrs: addrs("127.0.1.1"), want: "*"},
		{name: "own name, two networks", host: "head", addrs: addrs("10.0.0.1", "192.168.0.1"), want: "*"},
		{name: "another's name", host: "head", addrs: addrs("10.0.0.2", "10.0.0.3")},
		{
			name: "several machines", host: "head", addrs: addrs("10.0.0.2", "10.0.0.1", "10.0.0.3"), hint: -1,
			err: several,
		},
		{name: "several machines, hint 0", host: "head", addrs: addrs("10.0.0.2", "10.0.0.1"), hint: 0, want: "*"},
		{name: "several machines, hint 1", host: "head", addrs: addrs("10.0.0.2", "10.0.0.1"), hint: 1},
		{
			name: "several machines, host", host: "head", addrs: addrs("10.0.0.2", "10.0.0.1"), hint: 1, isHost: &yes,
			want: "*",
		},
		{name: "several machines, not host", host: "head", addrs: addrs("10.0.0.2", "10.0.0.1"), hint: -1, isHost: &no},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := HostChoice(Endpoint{Host: tt.host, Port: 29400, Addrs: tt.addrs}, twoNetworks(), tt.isHost,
				tt.hint)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("got %v, want %s", err, tt.err)
				}
				return
			}
			want := HostRole{Port: 29400, Candidate: tt.want != ""}
			if tt.want != "" && tt.want != "*" {
				want.Addr = netip.MustParseAddr(tt.want)
			}
			if diff := cmp.Diff(want, got, sameAddr); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// closeAtEnd closes l at the end of the test.
func closeAtEnd(t *testing.T, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
}

func TestBind(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	l, err := ListenHost(t.Context(), HostRole{Candidate: true, Addr: loopback})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l)
	if got := l.Addr().(*net.TCPAddr).AddrPort().Addr(); got != loopback {
		t.Errorf("it listens on %v", got)
	}
	for _, addr := range []netip.Addr{loopback, {}} { // the port is taken at every address too
		_, err = ListenHost(t.Context(), HostRole{Candidate: true, Addr: addr, Port: portOf(l)})
		if !errors.Is(err, syscall.EADDRINUSE) || !errors.Is(err, rdzv.ErrConnection) {
			t.Errorf("a second listener at %v: %v", addr, err)
		}
	}
	_, err = ListenHost(t.Context(), HostRole{Candidate: true, Addr: netip.MustParseAddr("192.0.2.1"), Port: 1234})
	if want := "rendezvous backend connection: listen for agents on 192.0.2.1:1234: cannot assign requested address"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	every, err := ListenHost(t.Context(), HostRole{Candidate: true})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, every)
	if !every.Addr().(*net.TCPAddr).IP.IsUnspecified() {
		t.Errorf("it listens on %v", every.Addr())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	cancel(stop)
	if l, err := ListenHost(ctx, HostRole{Candidate: true, Addr: loopback}); err == nil {
		closeAtEnd(t, l)
	} else if !errors.Is(err, stop) {
		t.Errorf("after cancel: %v", err)
	}
}

// takenPorts takes two adjacent ports and returns the first.
func takenPorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		first, err := ListenWorkerStore(t.Context(), Ports{}, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, first)
		low := portOf(first)
		second, err := ListenWorkerStore(t.Context(), Ports{low + 1, low + 1}, "127.0.0.1")
		if err == nil {
			closeAtEnd(t, second)
			return low
		}
	}
	t.Fatal("there are no two free ports in a row")
	return 0
}

func TestListenWorkerStore(t *testing.T) {
	low := takenPorts(t)
	ports := Ports{low, low + 1}
	l, err := ListenWorkerStore(t.Context(), Ports{low, low + 100}, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, l)
	if got := portOf(l); got <= low+1 || got > low+100 {
		t.Errorf("the first free port of %d-%d is %d, though the first two are taken", low, low+100, got)
	}
	_, err = ListenWorkerStore(t.Context(), ports, "127.0.0.1")
	want := &rdzv.ListenError{Addr: "127.0.0.1", Port: low, Err: fmt.Errorf("no port of %d-%d is free: %w", low, low+1,
		syscall.EADDRINUSE)}
	if got, ok := errors.AsType[*rdzv.ListenError](err); !ok || got.Addr != want.Addr || got.Port != want.Port ||
		got.Error() != want.Error() || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want %v", err, want)
	}
	_, err = ListenWorkerStore(t.Context(), Ports{low, low}, "127.0.0.1")
	if want := fmt.Sprintf("listen for the worker store on 127.0.0.1:%d: address already in use", low); err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = ListenWorkerStore(t.Context(), ports, "192.0.2.1")
	if got, ok := errors.AsType[*rdzv.ListenError](err); !ok || !errors.Is(err, syscall.EADDRNOTAVAIL) ||
		strings.Contains(got.Error(), "no port of") {
		t.Errorf("a foreign address: %v", err)
	}
	every, err := ListenWorkerStore(t.Context(), Ports{}, "")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, every)
	if !every.Addr().(*net.TCPAddr).IP.IsUnspecified() {
		t.Errorf("it listens on %v", every.Addr())
	}
}
