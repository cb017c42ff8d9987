package main

import (
	"io"
	"os"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/sdnotify"
	"github.com/elasticrun/elasticrun/internal/storeserver"
)

// storeSignals stop the store: the first one in order, a second one at once.
func storeSignals() []syscall.Signal {
	return []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
}

// runStore runs a store until a signal comes. It returns nil after an orderly stop: init systems and schedulers would
// take any other exit code than 0 for a crash.
func runStore(args []string, stdout io.Writer) error {
	cfg, err := config.LoadStore(args)
	if err != nil {
		return err
	}
	manager, err := sdnotify.Find(os.LookupEnv, os.Getpid())
	if err != nil {
		cfg.Warnings = append(cfg.Warnings, err.Error()+"; the service manager is not notified")
	}
	ctx, signals := handleSignals(storeSignals(), storeSignals(), nil, cfg.Grace, nil)
	defer signals.stop()
	return storeserver.Serve(ctx, signals.urgent, cfg, version, stdout, manager)
}
