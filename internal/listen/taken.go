package listen

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// lookUpTimeout is how long the name service may take.
const lookUpTimeout = 2 * time.Second

// PortsTaken finds out, without listening, whether the ports are free that this node's worker store was given. The error is the one that listening
// would have.
func PortsTaken(ctx context.Context, cfg *config.Config) error {
	r := cfg.Rendezvous
	host, ports := r.LocalAddr, r.WorkerStorePorts
	switch {
	case cfg.MaxNodes == 1:
		host, ports = r.MasterAddr, config.PortRange{Low: r.MasterPort, High: r.MasterPort}
	case r.Backend == rdzv.BackendStatic:
		return nil // it is at the endpoint
	}
	addr, err := ownAddr(ctx, host)
	if err != nil {
		return &rdzv.ListenError{Addr: host, Port: ports.Low, Err: err}
	}
	for port := ports.Low; port <= ports.High; port++ {
		if owner, err := topology.PortOwner(addr, port); port == 0 || err != nil || !owner.Listens() {
			return nil
		}
	}
	if ports == (config.PortRange{}) {
		return nil
	}
	return &rdzv.ListenError{Addr: host, Port: ports.Low, Err: syscall.EADDRINUSE}
}

// ownAddr is the address that host means on this machine; zero for any. It is EADDRNOTAVAIL where host is another one.
func ownAddr(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	e, err := elastic.Resolve(ctx, host, 1)
	if err != nil {
		return netip.Addr{}, err
	}
	ifaces, err := elastic.Interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	local := elastic.Local(e.Addrs, ifaces)
	if len(local) == 0 {
		return netip.Addr{}, syscall.EADDRNOTAVAIL
	}
	return local[0], nil
}
