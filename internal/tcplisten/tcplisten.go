// Package tcplisten opens TCP listeners on exactly the addresses that a flag or a configuration names. It does not know
// what is served there. Its functions are safe for concurrent use.
package tcplisten

import (
	"context"
	"net"
	"net/netip"
	"strconv"
)

// Listen listens on host, an address or a name. An empty host means every address of this machine, and port 0 means any
// free port. The errors are those of package net.
func Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	network := "tcp"
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		network = "tcp4" // With "tcp", package net listens on the IPv6 addresses too when host is 0.0.0.0.
	}
	return new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
}
