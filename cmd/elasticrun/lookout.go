package main

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// lookout lets others see what the agent does: in the event log, and at --status-addr.
type lookout struct {
	board  status.Board
	looker *status.Looker
	log    zerolog.Logger
	last   events.Event    // what all events of the launcher's own have
	file   *events.FileLog // nil: nobody wants it
	listen net.Listener    // nil: nobody wants it
	server *status.Server  // nil before attach, or where there is no listener
	usage  *procs.Sampler  // nil before attach, as are these
	agent  *agent.Agent    //
	gpus   *topology.ComputeApps
}

// openLookout finds out whether the event log can be written and the status served. Its errors are *config.UsageError; then nothing
// is left behind.
func openLookout(ctx context.Context, cfg *config.Config, host string, log zerolog.Logger) (*lookout, error) {
	l := &lookout{log: log, last: events.Event{RunID: cfg.RunID, Host: host}}
	if cfg.StatusAddr != nil {
		var err error
		if l.listen, err = listenOn(ctx, "--status-addr", *cfg.StatusAddr); err != nil {
			return nil, err
		}
	}
	if cfg.EventLog != "" {
		path := workerlog.Substitute(cfg.EventLog, map[string]string{"hostname": host, "run_id": cfg.RunID})
		var err error
		l.file, err = events.OpenFileLog(path, func(err error) {
			log.Warn().Err(err).Str("path", path).Msg("events are missing in the event log")
		})
		if err != nil {
			if l.listen != nil {
				_ = l.listen.Close()
			}
			return nil, &config.UsageError{Where: "--event-log=" + cfg.EventLog, Problem: err.Error() + "; name a file that you may write"}
		}
	}
	l.looker = status.NewLooker(&l.board, status.Sources{Usage: l, LastLines: l.lastLines, GPUs: l.gpuLoad, Logger: log})
	l.Emit(events.Event{
		Kind: events.KindLauncherStarted, Time: time.Now(), RunID: cfg.RunID, Host: host, Name: cfg.Script, Version: version,
		Backend: cfg.Rendezvous.Backend, LocalWorldSize: cfg.NprocPerNode, PID: os.Getpid(),
	})
	return l, nil
}

// attach begins to serve the status of an agent that is about to run.
func (l *lookout) attach(a *agent.Agent, gpus *topology.ComputeApps) {
	l.agent, l.gpus, l.usage = a, gpus, procs.NewSampler()
	if l.listen == nil {
		return
	}
	l.server = status.Serve(l.listen, l.looker, l.log)
	// As the log folder: at any level, since it was asked for, and the port may be any.
	l.log.Log().Str(zerolog.LevelFieldName, zerolog.LevelInfoValue).Str("url", "http://"+l.listen.Addr().String()+"/status").Msg("status is served")
}

// maxBrief is the largest status that other nodes keep, in bytes.
const maxBrief = 48 << 10

// brief is the status for whoever looks at the whole job.
func (l *lookout) brief(ctx context.Context) []byte { return l.looker.Look(ctx).Brief(maxBrief) }

// Emit implements events.Sink. It does not block. Events that are logged come from one goroutine at a time.
func (l *lookout) Emit(r events.Event) {
	if !r.Kind.Logged() {
		return
	}
	l.last.NodeRank, l.last.Round = r.NodeRank, r.Round
	l.board.Emit(r)
	if l.file != nil {
		l.file.Emit(r)
	}
}

// close tells how the launcher ends, and ends the looking.
func (l *lookout) close(rep report.Report, end ending) {
	if l == nil {
		return
	}
	r := l.last
	r.Kind, r.Time, r.ExitCode, r.Reason, r.Error = events.KindEnd, time.Now(), &end.code, rep.Reason, report.Begin(rep.Error, maxSummary)
	r.Restarts = &rep.Restarts
	if c := rep.RootCause; c != nil {
		r.RootCause = &events.Culprit{
			Host: c.Host, Rank: c.Rank, LocalRank: c.LocalRank, PID: c.PID, Cause: c.Kind, Summary: report.Begin(c.Summary, maxSummary),
		}
	}
	l.Emit(r)
	if l.server != nil {
		l.server.Close()
	} else if l.listen != nil { // the agent was never there
		_ = l.listen.Close()
	}
	l.looker.Close()
	if l.file == nil {
		return
	}
	if err := l.file.Close(); err != nil {
		l.log.Warn().Err(err).Msg("closing the event log")
	}
}

// Sample implements status.UsageSampler.
func (l *lookout) Sample(pids map[int]int) map[int]procs.Usage { return l.usage.Sample(pids) }

func (l *lookout) lastLines() map[int]string { return l.agent.LastLines() }

func (l *lookout) gpuLoad(ctx context.Context) ([]topology.GPULoad, error) {
	if l.gpus == nil {
		return nil, nil
	}
	return l.gpus.Load(ctx)
}
