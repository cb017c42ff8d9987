package tcplisten

import (
	"net"
	"net/netip"
	"testing"
)

// An IPv4 address never stands for IPv6 addresses too. Package net alone would treat 0.0.0.0 that way.
func TestListenOnExactlyTheHost(t *testing.T) {
	for host, v4 := range map[string]bool{"": false, "0.0.0.0": true, "127.0.0.1": true} {
		ln, err := Listen(t.Context(), host, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		at := ln.Addr().(*net.TCPAddr).AddrPort().Addr()
		if wanted, _ := netip.ParseAddr(host); v4 && at != wanted || host == "" && !at.IsUnspecified() {
			t.Errorf("%q: it listens on %v", host, at)
		}
	}
}
