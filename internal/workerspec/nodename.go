package workerspec

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// lookUpTimeout bounds looking up the name of a node.
const lookUpTimeout = 5 * time.Second

// ResolveNode replaces inferred rendezvous hosts that cannot be looked up by the addresses that Slurm has for them: the
// names of Slurm's nodes need not be host names. If Slurm does not know the address either, the name stays, and the
// rendezvous keeps trying to look it up.
func ResolveNode(ctx context.Context, cfg *config.Config, log zerolog.Logger) {
	r := &cfg.Rendezvous
	isEndpoint := func(s config.Setting) bool { return s.Name == "rdzv-endpoint" || s.Name == "master-addr" }
	if cfg.Scheduler != scheduler.Slurm || len(r.Endpoints) == 0 || !slices.ContainsFunc(cfg.Inferred, isEndpoint) {
		return
	}
	for i := range r.Endpoints {
		at := &r.Endpoints[i]
		addr := NodeAddr(ctx, at.Host, log)
		if r.MasterAddr == at.Host {
			r.MasterAddr = addr
		}
		at.Host = addr
	}
}

// NodeAddr returns the name of a Slurm node if the name can be looked up, and otherwise the address that Slurm has for
// the node. If Slurm has none, it returns the name and logs a warning.
func NodeAddr(ctx context.Context, node string, log zerolog.Logger) string {
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(bounded, node); err == nil {
		return node
	}
	addr, err := scheduler.NodeAddr(ctx, node)
	if err != nil {
		log.Warn().Err(err).Msgf("the node name %s cannot be looked up", node)
		return node
	}
	log.Info().Str("node", node).Str("address", addr).Msg("the node name cannot be looked up; Slurm knows its address")
	return addr
}
