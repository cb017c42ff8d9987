package workerspec

import (
	"context"
	"errors"
	"net"

	"github.com/elasticrun/elasticrun/internal/config"
)

// CheckEndpoint refuses an endpoint that is a misspelled "local", because agents would try to look it up until the join
// timeout. A host may have such a name, so CheckEndpoint looks it up once. If the name service does not answer, it only
// adds a warning to cfg.
func CheckEndpoint(ctx context.Context, cfg *config.Config) error {
	return checkEndpoint(ctx, cfg, net.DefaultResolver.LookupHost)
}

func checkEndpoint(
	ctx context.Context, cfg *config.Config, lookUp func(ctx context.Context, host string) ([]string, error),
) error {
	name, where := cfg.Rendezvous.Endpoint, cfg.Where("rdzv-endpoint")
	if cfg.MaxNodes == 1 || !cfg.Given("rdzv-endpoint") || !cfg.Rendezvous.IsNearLocal() {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	_, err := lookUp(bounded, name)
	dns, failed := errors.AsType[*net.DNSError](err)
	switch {
	case !failed:
		return nil
	case !dns.IsNotFound: // the name service has not answered
		cfg.Warnings = append(cfg.Warnings, where+": the name cannot be looked up now; "+config.MeantLocal)
		return nil
	}
	return &config.UsageError{
		Where: where,
		Problem: "no host has this name; " + config.MeantLocal + " (write " + name +
			":PORT for a host that gets the name later)",
	}
}
