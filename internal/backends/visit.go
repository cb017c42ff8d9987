package backends

import (
	"context"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/launch"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/etcd"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// VisitTTL is how long agents keep sending their status if the observer dies.
const VisitTTL = 10 * time.Second

// StatusInterval is how often an observed agent sends its status.
const StatusInterval = 2 * time.Second

// Visit opens an observer's session in the coordination store of a job.
func Visit(ctx context.Context, r config.Rendezvous, o Options, runID string, inSlurm bool) (coord.Store, error) {
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
	host := r.Endpoints[0].Host
	if inSlurm {
		host = launch.NodeAddr(ctx, host, o.Logger)
	}
	return (&elastic.C10d{
		RunID: runID, Version: o.Version, Host: host, Ports: r.Ports, Secret: []byte(r.Secret.Reveal()),
	}).OpenObserver(ctx, VisitTTL)
}
