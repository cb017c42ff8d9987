package rpc

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// listen opens the socket of a worker and returns the address to publish. For the address "" it uses the local address
// of the connection to the store: a worker that reaches the store can probably reach that address. A store without a
// connection is on this host or in a file system; then listen uses the loopback address.
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
		return nil, "", fmt.Errorf("listen for calls at %s: %w; set %s or the option Address to an address of this host",
			address, err, envAddr)
	}
	// Keep the host as configured: a certificate may be for that name.
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return ln, net.JoinHostPort(host, port), err
}

// localHost returns the local address of the connection to the store, or the loopback address.
func localHost(store kvstore.Store) string {
	if client, ok := store.(interface{ LocalAddr() netip.AddrPort }); ok {
		if local := client.LocalAddr(); local.IsValid() {
			return local.Addr().Unmap().String()
		}
	}
	return "127.0.0.1"
}
