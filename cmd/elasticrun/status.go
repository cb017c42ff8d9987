package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/status"
)

// runStatus shows the status of an agent or of a job.
func runStatus(args []string, stdout io.Writer) error {
	cfg, err := config.LoadStatus(args)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(os.Stderr, "elasticrun:", w)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	to := status.NewPrinter(cfg, stdout, os.Stderr)
	if cfg.Addr != nil {
		err = status.WatchAgent(ctx, cfg, to)
	} else {
		err = status.WatchJob(ctx, cfg, jobs.Machine(), version, to)
	}
	if ctx.Err() != nil { // the user ended --watch
		err = nil
	}
	return err
}
