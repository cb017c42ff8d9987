package launch

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// lookUpTimeout is how long the name of a node may take to be looked up.
const lookUpTimeout = 5 * time.Second

// ResolveNode replaces the name of a Slurm node by its address where the name cannot be looked up: to Slurm it need not be a
// host's. Without an answer the name stays, and the rendezvous tries on.
func ResolveNode(ctx context.Context, cfg *config.Config, log zerolog.Logger) {
	r := &cfg.Rendezvous
	meets := func(s config.Setting) bool { return s.Name == "rdzv-endpoint" || s.Name == "master-addr" }
	if cfg.Scheduler != scheduler.Slurm || len(r.Endpoints) != 1 || !slices.ContainsFunc(cfg.Inferred, meets) {
		return
	}
	at := &r.Endpoints[0]
	addr := NodeAddr(ctx, at.Host, log)
	if r.MasterAddr == at.Host {
		r.MasterAddr = addr
	}
	at.Host = addr
}

// NodeAddr returns a node's name if it can be looked up, else the address that Slurm knows, or the name all the same.
func NodeAddr(ctx context.Context, node string, log zerolog.Logger) string {
	asking, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	if _, err := net.DefaultResolver.LookupHost(asking, node); err == nil {
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
