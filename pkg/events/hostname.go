package events

import (
	"context"
	"net"
	"strings"
	"time"
)

// hostTimeout bounds the search for the fully qualified host name.
const hostTimeout = time.Second

// resolver is the part of net.Resolver that qualifiedHost needs.
type resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

// qualifiedHost returns the fully qualified name of this machine, whose plain name is host. Like Python's
// socket.getfqdn, it takes the first name with a dot that /etc/hosts or DNS has for the machine's first address.
// Without one it returns host, even if the address is that of localhost, for which Python would return "localhost".
func qualifiedHost(ctx context.Context, r resolver, host string) string {
	addrs, err := r.LookupHost(ctx, host)
	if err != nil || len(addrs) == 0 {
		return host
	}
	names, _ := r.LookupAddr(ctx, addrs[0]) // with an error, some names may be valid
	for _, name := range names {
		name = strings.TrimSuffix(name, ".")
		if strings.Contains(name, ".") && !strings.HasPrefix(name, "localhost.") {
			return name
		}
	}
	return host
}

// dialFunc is the Dial of net.Resolver.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newResolver returns a resolver whose lookups return when their context ends. A plain net.Resolver keeps waiting for a
// DNS server that does not answer.
func newResolver(dial dialFunc) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}}
}
