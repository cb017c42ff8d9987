package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/doctor"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// runDoctor checks this machine. Its error lists the checks that failed. On a signal it first ends the processes that
// it started: they are in process groups of their own, so Ctrl-C does not reach them.
func runDoctor(args []string, stdout io.Writer) error {
	cfg, asJSON, err := config.LoadDoctor(args, workerspec.Machine{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, procs.NotIgnored([]syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM})...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if sig, ok := (<-signals).(syscall.Signal); ok {
			cancel(&agent.SignalError{Signal: sig})
		}
	}()
	r, err := doctor.Examine(ctx, cfg, version)
	signal.Stop(signals)
	close(signals)
	<-done
	switch {
	case ctx.Err() != nil: // it may have caused err
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	if err := printResult(stdout, r, asJSON); err != nil {
		return err
	}
	return r.Err()
}
