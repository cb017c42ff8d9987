package main

import (
	"io"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/storeserver"
)

// storeSignals end the store: in order the first time, at once when one of them comes again.
func storeSignals() []syscall.Signal {
	return []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
}

// store runs a store server until a signal comes, and returns nil when it
// was told to stop and did so in order. A server has nothing else to succeed at, and init systems
// and schedulers would take another code than 0 for a crash.
func store(args []string, stdout io.Writer) error {
	cfg, err := config.LoadStore(args)
	if err != nil {
		return err
	}
	ctx, signals := handleSignals(storeSignals(), storeSignals(), cfg.Grace, nil)
	defer signals.stop()
	return storeserver.Serve(ctx, signals.urgent, cfg, version, stdout)
}
