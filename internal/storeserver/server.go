package storeserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// Serve runs a store until ctx ends. It returns nil if it has stopped in order then, and the cause of ctx if hurry was
// closed meanwhile.
func Serve(ctx context.Context, hurry <-chan struct{}, cfg *config.Store, version string, stdout io.Writer) error {
	log, lines := logging.New(cfg.LogFormat, cfg.LogLevel, os.Stderr, nil)
	defer func() { _ = lines.Close() }()
	listener, err := listen.On(ctx, "--listen", cfg.Listen)
	if err != nil {
		return err
	}
	limitHeap(cfg.MaxMemory)
	for _, w := range cfg.Warnings {
		log.Warn().Msg(w)
	}
	agents, err := serveAgents(ctx, cfg, version, log)
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer agents.close()
	server := tcpstore.NewServer(tcpstore.ServerOptions{
		Logger: log, MaxConns: cfg.MaxConns, MaxMemory: shareMemory(cfg.MaxMemory).workers, StallTimeout: cfg.StallTimeout,
		Agents: agents.server.ServeConn, ShedAgents: agents.server.ShedPending,
	})
	ready := fmt.Sprintf("store listening on %s", listener.Addr())
	if cfg.Health != nil {
		healthListener, err := listen.On(ctx, "--health", *cfg.Health)
		if err != nil {
			_ = listener.Close()
			return err
		}
		answers := newHealth(agents.addMemory(server.Stats), ctx.Done())
		answers.failed = agents.server.Ended()
		stop := answers.serve(healthListener, log)
		defer stop()
		ready += fmt.Sprintf(" health on http://%s%s", healthListener.Addr(), healthPath)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(stdout, ready); err != nil {
		log.Warn().Err(err).Msg(ready)
	}
	select {
	case err := <-served: // a defect
		_ = server.Close()
		return fmt.Errorf("serve the store: %w", err)
	case <-ctx.Done():
	case <-agents.server.Ended():
	}
	failure := agents.failure(cfg)
	err = errors.Join(failure, stopStore(ctx, hurry, server, cfg.Grace, log, cmp.Or(failure, context.Cause(ctx))))
	if failed := <-served; !errors.Is(failed, kvstore.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("serve the store: %w", failed))
	}
	return err
}

// stopStore ends the server, of which nothing is left then. Requests under way may take the grace to finish, or until
// hurry is closed; the connections that have not are closed. why is the reason to stop.
func stopStore(ctx context.Context, hurry <-chan struct{}, server *tcpstore.Server, grace time.Duration, log zerolog.Logger, why error) error {
	log.Info().Stringer("grace", grace).Msgf("%v: stopping", why)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	done := make(chan bool, 1)
	go func() { done <- server.Shutdown(bounded) == nil }()
	select {
	case inOrder := <-done:
		if !inOrder {
			log.Warn().Int("connections", server.Stats().Open).Msg("the grace is over: connections in the midst of a request are closed")
			_ = server.Close()
		}
		return nil
	case <-hurry:
		_ = server.Close()
		<-done
		return context.Cause(ctx)
	}
}
