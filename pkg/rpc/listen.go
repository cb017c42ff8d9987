package rpc

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// listen opens the socket of a worker, and returns the address that the others are to be told. "" is the address from which the
// store was reached, by which those that reach the store may reach this host; other stores than a client's are on this host or on a file
// system, which tells nothing, so there it is the loopback address.
func listen(ctx context.Context, address string, store kvstore.Store) (net.Listener, string, error) {
	if address == "" {
		address = net.JoinHostPort(localHost(store), "0")
	}
	given := address
	address, err := parseAddress(given)
	if err != nil {
		return nil, "", fmt.Errorf("listen for calls at %s: %w", given, err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, "", fmt.Errorf("listen for calls at %s: %w; %s or the option Address names an address of this host", address, err, envAddr)
	}
	// The host as it was given: a certificate may be for that name.
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return ln, net.JoinHostPort(host, port), err
}

// localHost is this host as those that the store serves know it.
func localHost(store kvstore.Store) string {
	if client, ok := store.(interface{ LocalAddr() netip.AddrPort }); ok {
		if local := client.LocalAddr(); local.IsValid() {
			return local.Addr().Unmap().String()
		}
	}
	return "127.0.0.1"
}
