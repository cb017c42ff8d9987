package telemetry

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/announce"
	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/internal/httpserver"
	"github.com/elasticrun/elasticrun/internal/jobs"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/liveness"
	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/notify"
	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/goodput"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Telemetry passes the agent's events to the event log, the console and --notify-cmd, and serves the status of this
// node. Close it.
type Telemetry struct {
	tracker   status.Tracker
	observer  *status.Observer
	show      func(warning bool, title, text string) // on the console
	notice    func(line string)
	ask       status.AskStacks                           // nil before Attach, or if nobody can be asked
	used      func() (used *goodput.Goodput, final bool) // nil before Attach
	keepsLogs bool
	log       zerolog.Logger
	mu        sync.Mutex
	last      events.Event       // guarded by mu: the fields that all events of the launcher have
	sinks     events.Sinks       // tracker, the announcer, and file, console and notifier if set
	file      *events.FileLog    // nil without --event-log
	console   *events.TorchLines // nil if torch's events are not printed
	notifier  *notify.Notifier   // nil without --notify-cmd
	listener  net.Listener       // nil without --status-addr
	server    *httpserver.Server // nil before Attach, or without a listener
	port      *int               // of health checks; nil: none are served
	health    *httpserver.Server // nil before Attach, or without a usable port
	local     *httpserver.Server // for elasticrun ps, status and stop; nil before Attach, or if it could not be registered
	usage     *procs.Sampler     // nil before Attach, like agent, gpus and liveness
	agent     *agent.Agent
	gpus      *topology.ComputeApps
	hangs     hangs
	liveness  *liveness.Watcher
	launcher  jobs.Launcher // zero before Attach
}

// Open opens the event log and the listener of --status-addr, and emits that the launcher has started. lines is the
// console: torch's events go there if the user wants them. Errors are *config.UsageError; after an error nothing stays
// open.
func Open(
	ctx context.Context, cfg *config.Config, version, host string, log zerolog.Logger, lines io.Writer,
) (*Telemetry, error) {
	t := &Telemetry{
		hangs: hangs{auto: cfg.HangTimeout.Auto, action: cfg.HangAction}, log: log, port: cfg.TorchAgent.HealthPort,
		last: events.Event{RunID: cfg.RunID, Host: host},
	}
	if cfg.StatusAddr != nil {
		var err error
		if t.listener, err = listen.On(ctx, cfg.Where("status-addr"), *cfg.StatusAddr); err != nil {
			return nil, err
		}
	}
	if cfg.EventLog != "" {
		path := workerlog.Substitute(cfg.EventLog, map[string]string{"hostname": host, "run_id": cfg.RunID})
		var err error
		t.file, err = events.OpenFileLog(path, func(err error) {
			log.Warn().Err(err).Str("path", path).Msg("events are missing from the event log")
		})
		if err != nil {
			if t.listener != nil {
				_ = t.listener.Close()
			}
			return nil, &config.UsageError{
				Where:   cfg.Where("event-log"),
				Problem: err.Error() + "; name a file that you may write",
			}
		}
	}
	t.notice = logging.Notice(cfg.LogFormat, cfg.LogLevel, log, lines)
	t.show, t.keepsLogs = logging.Text(cfg.LogFormat, cfg.LogLevel, log, lines), cfg.KeepsLogs()
	t.sinks = events.Sinks{&t.tracker, announce.New(announced(cfg), t.notice)}
	if t.file != nil {
		t.sinks = append(t.sinks, t.file)
	}
	if cfg.EventLogHandler == "console" {
		t.console = events.NewTorchLines(lines)
		t.console.QualifyHost(ctx, host)
		t.sinks = append(t.sinks, t.console)
	}
	if cfg.NotifyCmd != "" {
		t.notifier = notify.New(ctx, notify.Options{
			Command: cfg.NotifyCmd, Env: caller.Without(config.WithoutSecrets(os.Environ())),
			Only: cfg.MaxNodes == 1, Windowed: cfg.Rendezvous.RestartWindow > 0, Logger: log,
		})
		t.sinks = append(t.sinks, t.notifier)
	}
	t.observer = status.NewObserver(&t.tracker, status.Sources{
		Usage: t, LastLines: t.lastLines, GPUs: t.gpuLoad, Signs: t.signs, Used: t.goodput,
		Logger: log,
	})
	t.Emit(events.Event{
		Kind: events.KindLauncherStarted, Time: time.Now(), RunID: cfg.RunID, Host: host, Name: cfg.Script, Version: version,
		Backend: cfg.Rendezvous.Backend, LocalWorldSize: cfg.NprocPerNode, PID: os.Getpid(),
		Group: events.Group{Role: cfg.Role},
	})
	return t, nil
}

// announced returns the announcement of the job, as far as it is known before the first round.
func announced(cfg *config.Config) announce.Start {
	program, args := cfg.Command("python")
	_, oneThread := agent.OMPDefault(os.Environ(), cfg.NprocPerNode)
	s := announce.Start{
		Name:         filepath.Base(agent.WorkerSpec{Entrypoint: program, Args: args}.DisplayName()),
		LocalWorkers: cfg.NprocPerNode, OneThread: oneThread,
	}
	if cfg.RunID != config.NoRunID && (cfg.MaxNodes > 1 || cfg.Given("rdzv-id")) {
		s.RunID = cfg.RunID
	}
	return s
}

// Job is what other commands on this machine need to find and close a job.
type Job struct {
	Launcher jobs.Launcher
	Secret   config.Secret // of its agents
	Close    status.CloseRun
	Ask      status.AskStacks // may be nil
	// Used returns the rendezvous's goodput; may be nil.
	Used func() (used *goodput.Goodput, final bool)
}

// Attach registers the job on this machine and starts to serve the status of its agent a, which will run with watcher.
func (t *Telemetry) Attach(
	ctx context.Context, a *agent.Agent, gpus *topology.ComputeApps, watcher *liveness.Watcher, job Job,
) {
	t.agent, t.gpus, t.liveness, t.usage, t.launcher = a, gpus, watcher, procs.NewSampler(), job.Launcher
	t.ask, t.used = job.Ask, job.Used
	if entry, err := jobs.Machine().Register(job.Launcher); err != nil {
		t.log.Debug().Err(err).Msg("elasticrun ps and stop do not find this job; everything else goes on")
	} else {
		t.local = status.ServeLocal(entry, t.observer, job.Secret, job.Close, t.log)
	}
	t.serveHealth(ctx)
	if t.listener == nil {
		return
	}
	t.server = status.Serve(t.listener, t.observer, t.log)
	// The line is logged at any level: the user asked for the server, and its port may have been chosen by the system.
	logging.Always(t.log).Str("url",
		"http://"+t.listener.Addr().String()+"/status").Msg("status is served")
}

// serveHealth starts to answer health checks if the user has set a port. It listens on all addresses, because a kubelet
// or a load balancer reaches the node's or pod's addresses and not 127.0.0.1. As under torchrun, an unusable port
// changes nothing else.
func (t *Telemetry) serveHealth(ctx context.Context) {
	if t.port == nil {
		return
	}
	l, err := listen.On(ctx, status.HealthPortEnv, config.HostPort{Port: *t.port})
	if err != nil {
		t.log.Warn().Err(err).Msg("health checks are not answered; everything else goes on")
		return
	}
	t.health = status.ServeHealth(l, t.observer, t.agent.Answers, t.log)
	t.log.Info().Str("address", l.Addr().String()).Msg("health checks are answered")
}

// maxBrief bounds the status that is stored for elasticrun status, in bytes.
const maxBrief = 48 << 10

// Brief returns the status of this node as JSON, short enough to be stored for elasticrun status.
func (t *Telemetry) Brief(ctx context.Context) []byte { return t.observer.Observe(ctx).Brief(maxBrief) }

// Stacks returns what the workers of this node are doing, in the form that elasticrun stacks reads from the store.
func (t *Telemetry) Stacks(ctx context.Context, r rounds.StacksRequest) []byte {
	if r.Look {
		return status.PackStacks(t.look(ctx, r.AllThreads))
	}
	return status.PackStacks(t.observer.Stacks(ctx, r.AllThreads))
}

// Waits records what this node waits for, in words for people; empty if unknown.
func (t *Telemetry) Waits(why string) { t.tracker.Waits(time.Now(), why) }

// StoreChanged records which node hosts the job's store.
func (t *Telemetry) StoreChanged(s *status.Store) { t.tracker.StoreChanged(s) }

// Emit implements events.Sink. It does not block. Events that are logged must come from one goroutine at a time.
func (t *Telemetry) Emit(r events.Event) {
	if r.Kind.Logged() {
		t.mu.Lock()
		t.last.NodeRank, t.last.Round = r.NodeRank, r.Round
		t.mu.Unlock()
	}
	t.sinks.Emit(r)
}

// event returns an event of the launcher itself, with the rank and round of the last logged event.
func (t *Telemetry) event(kind events.Kind, at time.Time) events.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.last
	e.Kind, e.Time = kind, at
	return e
}

// shortNotice limits how long Close waits for the last notice if the node is about to be taken away, or if a user waits
// for the launcher to exit.
const shortNotice = 2 * time.Second

// Close emits and records how the launcher ended, and stops all servers. ctx has ended if a signal stopped the
// launcher; then Close waits less for the last notice. A nil Telemetry does nothing.
func (t *Telemetry) Close(ctx context.Context, rep report.Report) {
	if t == nil {
		return
	}
	r := t.event(events.KindEnd, time.Now())
	r.ExitCode, r.Reason, r.Error = &rep.ExitCode, rep.Reason, report.Head(rep.Error, report.MaxSummary)
	r.Restarts, r.OthersUnknown, r.Used = &rep.Restarts, rep.OthersUnknown, rep.Goodput
	if c := rep.RootCause; c != nil {
		r.RootCause = &events.RootCause{
			Host: c.Host, Rank: c.Rank, LocalRank: c.LocalRank, PID: c.PID, Cause: c.Kind,
			Summary: report.Head(c.Summary, report.MaxSummary),
		}
	}
	t.Emit(r)
	if t.notifier != nil {
		switch {
		case ctx.Err() != nil: // a signal has ended the job
			t.notifier.Close(context.WithoutCancel(ctx), shortNotice)
		case rep.Reason == string(exitcode.ReasonPreempted):
			t.notifier.Close(ctx, shortNotice)
		default:
			t.notifier.Close(ctx, 0)
		}
	}
	t.recordEnd(r)
	if t.local != nil {
		t.local.Close()
	}
	if t.health != nil {
		t.health.Close()
	}
	if t.server != nil {
		t.server.Close()
	} else if t.listener != nil { // there was no agent
		_ = t.listener.Close()
	}
	t.observer.Close()
	if t.console != nil {
		_ = t.console.Close() // lines never fails
	}
	if t.file == nil {
		return
	}
	if err := t.file.Close(); err != nil {
		t.log.Warn().Err(err).Msg("closing the event log")
	}
}

// recordEnd records how this launcher ended, if it leaves logs, so that elasticrun logs finds them.
func (t *Telemetry) recordEnd(end events.Event) {
	if !workerlog.HasLogs(t.launcher.LogDir) {
		return
	}
	e := jobs.Ended{Launcher: t.launcher, At: end.Time, ExitCode: *end.ExitCode, Reason: end.Reason, Summary: end.Error}
	if c := end.RootCause; c != nil {
		e.Summary = fmt.Sprintf("rank %d: %s", c.Rank, c.Summary)
	}
	if err := jobs.Machine().RecordEnd(e); err != nil {
		t.log.Debug().Err(err).Msg("elasticrun logs does not remember this job")
	}
}

// Sample implements status.UsageSampler.
func (t *Telemetry) Sample(pids map[int]int) map[int]procs.Usage { return t.usage.Sample(pids) }

func (t *Telemetry) lastLines() map[int]string { return t.agent.LastLines() }

func (t *Telemetry) signs() map[int]stacks.Life {
	if t.liveness == nil { // there is no agent yet
		return nil
	}
	return t.liveness.Signs()
}

// goodput returns how the job's workers have used their time, as far as this node knows; nil if it is not known.
func (t *Telemetry) goodput() *goodput.Goodput {
	if t.used == nil {
		return nil
	}
	used, _ := t.used()
	return used
}

func (t *Telemetry) gpuLoad(ctx context.Context) ([]topology.GPULoad, error) {
	if t.gpus == nil {
		return nil, nil
	}
	return t.gpus.Load(ctx)
}
