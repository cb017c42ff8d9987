package backends

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// VisitTTL is how long agents keep sending their status if the observer dies.
const VisitTTL = 10 * time.Second

// StatusInterval is how often an observed agent sends its status.
const StatusInterval = 2 * time.Second

// Certificates opens the site's certificates for elasticrun's own store. It returns nil if there are none, and for etcd
// and a local endpoint, which do not use them.
func Certificates(r config.Rendezvous, log zerolog.Logger) (*certfiles.Set, error) {
	if r.Backend == rdzv.BackendEtcd || r.Local || !r.Certificates.Given() {
		return nil, nil
	}
	return certfiles.Open(r.Certificates, log)
}

// StoreHosts returns the endpoints at which the store of a job may be, with their candidate ports.
func StoreHosts(r config.Rendezvous) []elastic.StoreHost {
	var hosts []elastic.StoreHost
	for i, at := range r.Endpoints {
		h := elastic.StoreHost{Host: at.Host, Ports: r.Ports}
		if i > 0 && len(r.Ports) < 2 || len(h.Ports) == 0 {
			h.Ports = []int{at.Port}
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// Visit opens an observer's session with this role in the coordination store of a job. If inSlurm is set, it looks up
// hosts that do not resolve as names of Slurm nodes. r must have an endpoint.
func Visit(
	ctx context.Context, role coord.Role, r config.Rendezvous, o Options, runID string, inSlurm bool,
) (coord.Store, error) {
	if r.Backend == rdzv.BackendEtcd {
		options, err := etcdOptions(r, runID, o.Logger)
		if err != nil {
			return nil, err
		}
		store, err := etcd.Open(ctx, options)
		if err != nil {
			return nil, err
		}
		return store, nil
	}
	hosts := StoreHosts(r)
	for i := range hosts {
		if inSlurm {
			hosts[i].Host = workerspec.NodeAddr(ctx, hosts[i].Host, o.Logger)
		}
	}
	certificates, err := Certificates(r, o.Logger)
	if err != nil {
		return nil, err
	}
	return (&elastic.C10d{
		RunID: runID, Version: o.Version, Host: hosts[0].Host, Ports: hosts[0].Ports, More: hosts[1:],
		Secret:       []byte(r.Secret.Reveal()),
		Certificates: certificates, ServerNames: r.StoreNames(),
	}).OpenObserver(ctx, role, VisitTTL)
}
