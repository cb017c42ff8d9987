package storeserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// coordination is what elasticrun store does for agents: their coordination store, and the leaders of their runs.
type coordination struct {
	server *coord.Server
	stop   context.CancelCauseFunc
	led    chan struct{} // closed when no leader is left
	marker *elastic.Marker
	log    zerolog.Logger
}

// serveAgents begins it. Connections are to be handed to its server.
func serveAgents(ctx context.Context, cfg *config.Store, version string, log zerolog.Logger) (*coordination, error) {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	joined := make(chan string)
	shares := shareMemory(cfg.MaxMemory)
	leaders := &elastic.Leaders{MaxRuns: shares.runs, Logger: log}
	opts := coord.ServerOptions{
		MaxMemory: shares.agents, Admit: leaders.Admit,
		Logger: log, Version: version, Secret: []byte(cfg.Secret.Reveal()),
		OnJoin: func(runID string) {
			select {
			case joined <- runID:
			case <-ctx.Done():
			}
		},
	}
	server := coord.NewServer(opts)
	if cfg.DataDir != "" {
		var err error
		if server, err = coord.OpenServer(cfg.DataDir, opts); err != nil {
			stop(nil)
			return nil, &config.UsageError{Where: "--data-dir=" + cfg.DataDir, Problem: err.Error()}
		}
	}
	c := &coordination{server: server, stop: stop, led: make(chan struct{}), log: log}
	if server.Fresh() {
		leaders.Fresh = c.mark(cfg, log)
	}
	go func() {
		defer close(c.led)
		leaders.Open, leaders.Joined = server.Local, server.HasSession
		leaders.Run(ctx, joined)
	}()
	return c, nil
}

// mark leaves the marker of a store that begins without sessions at a port that it may have had before.
func (c *coordination) mark(cfg *config.Store, log zerolog.Logger) *elastic.FreshStore {
	if cfg.Listen.Port == 0 {
		return &elastic.FreshStore{CreatedAt: boottime.Now()}
	}
	var fresh elastic.FreshStore
	var err error
	if c.marker, fresh, err = elastic.CreateMarker(fmt.Sprintf("elasticrun store at port %d", cfg.Listen.Port)); err != nil {
		log.Warn().Err(err).Msg("whether another store was here a moment ago is not known: no run begins before the keep-alive time is over")
	}
	return &fresh
}

// addMemory makes counters of the workers' store those of the whole: with the memory of the agents' store.
func (c *coordination) addMemory(workers func() tcpstore.Stats) func() tcpstore.Stats {
	return func() tcpstore.Stats {
		stats := workers()
		stats.Memory += c.server.Stats().Memory
		return stats
	}
}

// failure returns why the agents' store has ended by itself; nil if it has not. The error ends elasticrun store.
func (c *coordination) failure(cfg *config.Store) error {
	err := c.server.Err()
	if err == nil {
		return nil
	}
	return &dataDirError{dir: cfg.DataDir, err: err}
}

// dataDirError says that the folder of --data-dir cannot be written.
type dataDirError struct {
	dir string
	err error
}

func (e *dataDirError) Error() string {
	return fmt.Sprintf("the store ends because it cannot write to --data-dir=%s: %s; free space there or mend the disk, then start it again: its jobs resume",
		e.dir, strings.TrimPrefix(e.err.Error(), coord.ErrUnavailable.Error()+": "))
}

// Unwrap makes it an [rdzv.ErrConnection].
func (e *dataDirError) Unwrap() []error { return []error{rdzv.ErrConnection, e.err} }

// close ends the agents' connections and waits for what was started.
func (c *coordination) close() {
	c.stop(errors.New("the store stops"))
	var err error
	if c.server.Sessions() > 0 {
		err = c.marker.End()
	} else {
		err = c.marker.Remove()
	}
	if err != nil {
		c.log.Debug().Err(err).Msg("taking the store's marker away")
	}
	<-c.led
	_ = c.server.Close()
}
