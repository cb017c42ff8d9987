package storeserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/sdnotify"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// Serve runs a store until ctx ends or its agents' store fails. Then clients get cfg.Grace to finish their requests.
// Serve prints one line to stdout when the store is ready, and notifies manager, which may be nil.
//
// Serve returns nil after it stopped because ctx ended. It returns the cause of ctx if urgent was closed, which makes
// it stop at once. It returns an error that wraps rdzv.ErrConnection if the agents' store could not write to
// --data-dir.
func Serve(
	ctx context.Context, urgent <-chan struct{}, cfg *config.Store, version string, stdout io.Writer,
	manager *sdnotify.Manager,
) error {
	log, lines := logging.New(cfg.LogFormat, cfg.LogLevel, os.Stderr, nil)
	defer func() { _ = lines.Close() }()
	listener, err := listen.On(ctx, "--listen="+cfg.Listen.String(), cfg.Listen)
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
	users := &elastic.StoreUsers{Anybody: cfg.StoreUsers.Anybody, IDs: cfg.StoreUsers.IDs}
	accept, err := users.Admission(listener, false)
	if err != nil {
		_ = listener.Close()
		return &config.UsageError{Where: "--listen=" + cfg.Listen.String(), Problem: err.Error()}
	}
	server := tcpstore.NewServer(tcpstore.ServerOptions{
		Logger: log, Accept: accept, MaxConns: cfg.MaxConns, MaxMemory: divideMemory(cfg.MaxMemory).workers,
		StallTimeout: cfg.StallTimeout,
		Agents:       agents.server.ServeConn, ShedAgents: agents.server.ShedPending,
	})
	ready := fmt.Sprintf("store listening on %s", listener.Addr())
	read := func() counts { return counts{workers: server.Stats(), agents: agents.counts()} }
	health := newHealth(read, ctx.Done())
	health.failed = agents.server.Ended()
	if cfg.Health != nil {
		healthListener, err := listen.On(ctx, "--health="+cfg.Health.String(), *cfg.Health)
		if err != nil {
			_ = listener.Close()
			return err
		}
		stop := health.serve(healthListener, log) //nolint:contextcheck // Close bounds itself, after ctx has ended
		defer stop()
		ready += fmt.Sprintf(" health on http://%s%s", healthListener.Addr(), healthPath)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if _, err := fmt.Fprintln(stdout, ready); err != nil {
		log.Warn().Err(err).Msg(ready)
	}
	warnReachable(cfg, listener.Addr(), log)
	stopWatchdog := announce(manager, health, ready, log) //nolint:contextcheck // a message bounds itself
	defer stopWatchdog()
	select {
	case err := <-served: // a defect
		_ = server.Close()
		return fmt.Errorf("serve the store: %w", err)
	case <-ctx.Done():
	case <-agents.server.Ended():
	}
	notify(manager, log, sdnotify.Stopping) //nolint:contextcheck // ctx may have ended
	failure := agents.failure(cfg)
	err = errors.Join(failure, stopStore(ctx, urgent, server, cfg.Grace, log, cmp.Or(failure, context.Cause(ctx))))
	if failed := <-served; !errors.Is(failed, kvstore.ErrClosed) {
		err = errors.Join(err, fmt.Errorf("serve the store: %w", failed))
	}
	return err
}

// warnReachable warns once about a store that other machines can reach.
func warnReachable(cfg *config.Store, at net.Addr, log zerolog.Logger) {
	tcp, ok := at.(*net.TCPAddr)
	switch {
	case !ok || !machine.IsReachable(at):
	case cfg.Secret.Reveal() == "" && cfg.Certificates.CA != "" && cfg.Certificates.Cert == "":
		log.Warn().Msg("agents cannot verify this store, because it has no certificate: give it one with --ssl-cert and " +
			"--ssl-cert-key")
	case cfg.Secret.Reveal() == "" && cfg.Certificates.Cert != "" && cfg.Certificates.CA == "":
		log.Warn().Msgf("everybody who can reach port %d of this machine can read, change and end the jobs that meet here: "+
			"the store has a certificate, but nothing to verify agents by; give it --ca-cert, or a secret", tcp.Port)
	case cfg.Secret.Reveal() == "" && !cfg.Certificates.Mutual():
		log.Warn().Msgf("everybody who can reach port %d of this machine can read, change and end the jobs that meet here: "+
			"the store has no secret; elasticrun secret > FILE makes one, for --rdzv-secret-file=FILE here and on each node",
			tcp.Port)
	case tcp.IP.IsUnspecified():
		log.Warn().Msg("other machines can reach this store: it listens on every address (--listen=HOST:PORT chooses one)")
	}
}

// stopStore stops the server because of cause and waits until it has ended. Requests under way get grace to finish, or
// until urgent is closed; then their connections are closed.
func stopStore(
	ctx context.Context, urgent <-chan struct{}, server *tcpstore.Server, grace time.Duration, log zerolog.Logger,
	cause error,
) error {
	log.Info().Str("grace", seconds.Format(grace)).Msgf("%v: stopping", cause)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	done := make(chan bool, 1)
	go func() { done <- server.Shutdown(bounded) == nil }()
	select {
	case finished := <-done:
		if !finished {
			log.Warn().
				Int("connections", server.Stats().Open).
				Msg("--grace is over: connections with an unfinished request are closed")
			_ = server.Close()
		}
		return nil
	case <-urgent:
		_ = server.Close()
		<-done
		return context.Cause(ctx)
	}
}
