package main

import (
	"context"
	"io"
	"os/signal"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/status"
)

// runPS lists the jobs on this machine.
func runPS(args []string, stdout io.Writer) error {
	cfg, err := config.LoadPS(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return status.PrintJobs(ctx, cfg, jobs.Machine(), stdout)
}
