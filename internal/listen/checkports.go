package listen

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// lookUpTimeout bounds looking up a host name.
const lookUpTimeout = 2 * time.Second

// CheckPorts checks without listening whether the ports that the user gave this node's worker store are free. If none
// is free, or the address is not one of this machine, it returns the error that listening would return. It returns nil
// if it cannot find out who has a port.
func CheckPorts(ctx context.Context, cfg *config.Config) error {
	r := cfg.Rendezvous
	host, ports := r.LocalAddr, r.WorkerStorePorts
	switch {
	case cfg.MaxNodes == 1:
		host, ports = r.MasterAddr, config.PortRange{Low: r.MasterPort, High: r.MasterPort}
	case r.Backend == rdzv.BackendStatic:
		return nil // the worker store is at the endpoint
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

// ownAddr returns the address of this machine that host stands for. The zero Addr means any address. The error is
// EADDRNOTAVAIL if host is another machine.
func ownAddr(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	e, err := machine.Resolve(ctx, host, 1)
	if err != nil {
		return netip.Addr{}, err
	}
	ifaces, err := machine.Interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	local := machine.LocalAddrs(e.Addrs, ifaces)
	if len(local) == 0 {
		return netip.Addr{}, syscall.EADDRNOTAVAIL
	}
	return local[0], nil
}
