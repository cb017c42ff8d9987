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
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// coordination is the part of a store that serves agents: their coordination store, and the leaders of their runs.
type coordination struct {
	server  *coord.Server
	leaders *elastic.Leaders
	stop    context.CancelCauseFunc
	led     chan struct{} // closed when the leaders of all runs have ended
	marker  *machine.Marker
	log     zerolog.Logger
}

// serveAgents starts the coordination. The caller passes the connections of agents to its server.
func serveAgents(ctx context.Context, cfg *config.Store, version string, log zerolog.Logger) (*coordination, error) {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	joined := make(chan string)
	shares := divideMemory(cfg.MaxMemory)
	leaders := &elastic.Leaders{MaxRuns: shares.runs, Logger: log}
	opts := coord.ServerOptions{
		MaxMemory: shares.agents, Admit: leaders.Admit, Authority: rounds.Authority{},
		Logger: log, Version: version, Secret: []byte(cfg.Secret.Reveal()),
		OnJoin: func(runID string) {
			select {
			case joined <- runID:
			case <-ctx.Done():
			}
		},
	}
	if cfg.Certificates.Given() {
		var err error
		if opts.Certificates, err = certfiles.Open(cfg.Certificates, log); err != nil {
			stop(nil)
			return nil, err
		}
	}
	server := coord.NewServer(opts)
	if cfg.DataDir != "" {
		var err error
		if server, err = coord.OpenServer(cfg.DataDir, opts); err != nil {
			stop(nil)
			return nil, &config.UsageError{Where: "--data-dir=" + cfg.DataDir, Problem: err.Error()}
		}
	}
	c := &coordination{server: server, leaders: leaders, stop: stop, led: make(chan struct{}), log: log}
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

// mark creates the marker of a store that starts without sessions. The marker shows whether another store had the same
// port a moment ago, whose sessions may still be alive.
func (c *coordination) mark(cfg *config.Store, log zerolog.Logger) *rounds.FreshStore {
	if cfg.Listen.Port == 0 {
		return &rounds.FreshStore{CreatedAt: boottime.Now()}
	}
	var fresh rounds.FreshStore
	var err error
	if c.marker, fresh, err = machine.CreateMarker(fmt.Sprintf("elasticrun store at port %d",
		cfg.Listen.Port)); err != nil {
		log.Warn().Err(err).
			Msg("it is not known whether another store had this port a moment ago: no run starts before its sessions would " +
				"expire")
	}
	return &fresh
}

// counts returns the counters and limits of the agents' store.
func (c *coordination) counts() agentCounts {
	stats, limits := c.server.Stats(), c.server.Limits()
	return agentCounts{
		Runs:       quantity{c.leaders.Runs(), c.leaders.MaxRuns},
		Sessions:   quantity{stats.Sessions, limits.Sessions},
		Handshakes: quantity{stats.Pending, limits.Pending},
		Keys:       quantity{stats.Keys, limits.Keys},
		Memory:     quantity{int(stats.Memory), int(limits.Memory)},
	}
}

// failure returns why the agents' store has ended by itself, or nil if it runs. elasticrun store must end when it does.
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
	return fmt.Sprintf(
		"the store ends because it cannot write to --data-dir=%s: %s; free space there or fix the disk, then start the "+
			"store again: its jobs resume",
		e.dir,
		strings.TrimPrefix(e.err.Error(), coord.ErrUnavailable.Error()+": "),
	)
}

// Unwrap lets errors.Is find rdzv.ErrConnection.
func (e *dataDirError) Unwrap() []error { return []error{rdzv.ErrConnection, e.err} }

// close closes the agents' connections and waits for every goroutine.
func (c *coordination) close() {
	c.stop(errors.New("the store stops"))
	var err error
	if c.server.Sessions() > 0 {
		err = c.marker.End()
	} else {
		err = c.marker.Remove()
	}
	if err != nil {
		c.log.Debug().Err(err).Msg("the marker of this store was not removed")
	}
	<-c.led
	_ = c.server.Close()
}
