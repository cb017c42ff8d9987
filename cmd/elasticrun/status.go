package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// showStatus shows the status that the arguments ask for.
func showStatus(args []string, stdout io.Writer) error {
	cfg, err := config.LoadStatus(args)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(os.Stderr, "elasticrun:", w)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	show := shower(cfg, stdout)
	if cfg.Addr != nil {
		err = watchOne(ctx, cfg, show)
	} else {
		err = watchJob(ctx, cfg, show)
	}
	if ctx.Err() != nil { // whoever watches has seen enough
		err = nil
	}
	return err
}

// statusInterval is how often --watch shows the status.
const statusInterval = 2 * time.Second

// watchOne shows one agent, with --watch until it is gone.
func watchOne(ctx context.Context, cfg *config.Status, show func(status.Job) error) error {
	for first := true; ; first = false {
		s, err := status.Fetch(ctx, cfg.Addr.String())
		switch {
		case err != nil && first:
			return &noAnswer{"the agent at " + cfg.Addr.String(), err}
		case err != nil: // it has ended
			return nil
		}
		if err := show(status.OfOne(s)); err != nil || !cfg.Watch {
			return err
		}
		select {
		case <-time.After(statusInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// noAnswer says that whom the user asked for the status does not answer.
type noAnswer struct {
	who string
	err error
}

func (n *noAnswer) Error() string   { return n.who + ": " + n.err.Error() }
func (n *noAnswer) Unwrap() []error { return []error{n.err, rdzv.ErrConnection} }

// shower writes what is to be shown: the latest alone on a terminal, else one after the other.
func shower(cfg *config.Status, stdout io.Writer) func(status.Job) error {
	again := "\n"
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		again = "\x1b[H\x1b[2J"
	}
	shown := false
	return func(j status.Job) error {
		var text []byte
		var err error
		switch {
		case cfg.JSON && cfg.Watch:
			text, err = json.Marshal(j)
		case cfg.JSON:
			text, err = json.MarshalIndent(j, "", "  ")
		case shown || again != "\n" && cfg.Watch:
			text = []byte(again + j.Text())
		default:
			text = []byte(j.Text())
		}
		if err != nil {
			return err
		}
		if cfg.JSON {
			text = append(plainJSON(text), '\n')
		}
		shown = true
		_, err = stdout.Write(text)
		return err
	}
}
