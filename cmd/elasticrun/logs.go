package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/logview"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// runLogs shows the logs of a run, or lists runs.
func runLogs(args []string, stdout io.Writer) error {
	cfg, err := config.LoadLogs(args)
	if err != nil {
		return err
	}
	machine := jobs.Machine()
	if cfg.List {
		if err := checkLogDir(cfg); err != nil {
			return &config.UsageError{Problem: err.Error()}
		}
		return status.PrintRuns(machine, func(known []string) []string { return logview.List(cfg.LogDir, known) }, stdout)
	}
	known := status.KnownRuns(machine)
	run, err := logview.Find(cfg.LogDir, cfg.Run, known)
	if err != nil && !cfg.OnlyThere && cfg.Run != "" {
		if found, notFound := logview.Find("", cfg.Run, known); notFound == nil {
			run, err = found, nil
		}
	}
	if err != nil {
		return &config.UsageError{Problem: err.Error()}
	}
	opts := logview.Options{
		Ranks: cfg.Ranks, LocalRanks: cfg.LocalRanks, Stream: cfg.Stream, Pattern: cfg.Pattern, Attempt: cfg.Attempt,
		Tail:   cfg.Tail,
		Prefix: logview.DefaultPrefix, Follow: cfg.Follow, Terminal: term.IsTerminal(int(os.Stdout.Fd())),
		Note: func(text string) { fmt.Fprintln(os.Stderr, "elasticrun:", report.OneLine(text)) },
	}
	if cfg.Prefix != nil {
		opts.Prefix = *cfg.Prefix
	}
	if cfg.Run == "" {
		opts.Found = func() { opts.Note("showing the newest run, " + run + "; elasticrun logs --list lists the others") }
	}
	ctx := context.Background()
	if cfg.Follow {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		opts.Ended = runEnd(run, opts.Note)
	}
	err = logview.New(run, stdout, opts).Run(ctx)
	if errors.Is(err, logview.ErrNothing) || errors.Is(err, logview.ErrNoLogFile) ||
		errors.Is(err, logview.ErrCannotFollow) {
		return &config.UsageError{Problem: err.Error()}
	}
	return err
}

// checkLogDir reports why the runs in the log folder cannot be listed. A folder that only the configuration names may
// not be there yet.
func checkLogDir(cfg *config.Logs) error {
	if _, err := os.Stat(cfg.LogDir); cfg.OnlyThere && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no folder %s", cfg.LogDir)
	}
	return logview.CheckReadable(cfg.LogDir, "")
}

// runEnd returns a channel that is closed when a run has ended, or nil if the end cannot be seen. Its goroutine blocks
// in a system call that nothing can interrupt, and ends with the process.
func runEnd(run string, note func(string)) <-chan struct{} {
	ended := make(chan struct{})
	unseen := func(err error) {
		note("cannot see whether the run has ended, so it is followed until SIGINT: " + err.Error())
	}
	active, err := workerlog.RunActive(run)
	switch {
	case err != nil:
		unseen(err)
		return nil
	case !active:
		close(ended)
		return ended
	}
	go func() {
		if err := workerlog.AwaitRunEnd(run); err != nil {
			unseen(err)
			return
		}
		close(ended)
	}()
	return ended
}
