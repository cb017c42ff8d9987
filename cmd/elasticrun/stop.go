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

// runStop ends a job on all of its nodes.
func runStop(args []string, stdout io.Writer) error {
	cfg, err := config.LoadStop(args)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(os.Stderr, "elasticrun:", w)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	line, err := status.Stop(ctx, cfg, jobs.Machine(), version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, line)
	return err
}
