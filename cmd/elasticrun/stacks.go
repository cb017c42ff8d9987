package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/status"
)

// runStacks shows where the Python code of a job's workers is.
func runStacks(args []string, stdout io.Writer) error {
	cfg, err := config.LoadStacks(args)
	if err != nil {
		return err
	}
	note := func(line string) { fmt.Fprintln(os.Stderr, "elasticrun:", line) }
	for _, w := range cfg.Warnings {
		note(w)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	job, err := status.Stacks(ctx, cfg, jobs.Machine(), version, note)
	switch {
	case err != nil:
		return err
	case cfg.JSON:
		return json.NewEncoder(stdout).Encode(job)
	}
	_, err = fmt.Fprint(stdout, job.Text())
	return err
}
