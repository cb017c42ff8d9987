package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/rs/zerolog/diode"
	"golang.org/x/term"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/procs/guard"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// launch runs a job and returns the launcher's exit code.
func launch(args []string, lifeline *guard.Lifeline) int {
	cfg, err := config.Load(args, machine{})
	if err != nil {
		return usage(err)
	}
	if cfg.DryRun {
		return explainLaunch(cfg, false, os.Stdout)
	}
	files, err := openRecords(cfg, time.Now(), report.CheckFile)
	if err != nil {
		return usage(err)
	}
	ctx, told := listen(cfg.Signals, impatient(), cfg.ShutdownTimeout, lifeline)
	defer told.stop()
	console := workerlog.NewConsole(os.Stdout, os.Stderr)
	defer func() { _ = console.Close() }()
	var heard warned
	log, lines := newLogger(cfg.LogFormat, cfg.LogLevel, console.Stderr(), &heard)

	var result agent.RunResult
	var rep report.Report
	seen, err := openLookout(ctx, cfg, files.host, log)
	if err == nil {
		result, rep, err = runJob(ctx, told, cfg, lifeline, console, lines, seen, log)
	}
	if errors.As(err, new(*procs.StuckError)) {
		lifeline.Stuck()
	}
	end := conclude(result, explain(cfg, err))
	if lost := tellLost(console, log); lost != nil && end.reason == "" {
		end = ending{code: exitOutput, reason: config.ReasonOutput, err: fmt.Errorf("show the job's output: %w", lost)}
	}
	end = end.mapped(cfg.ExitCodeMap)
	rep.WarningCount, rep.Warnings = heard.list()
	rep = files.complete(rep, end)
	files.write(rep, end, log)
	seen.close(rep, end)
	_ = lines.Close()
	console.Conclude(rep.Text()+end.text(), roomPatience)
	return end.code
}

// roomPatience is how long the launcher waits for room under its console at the end.
const roomPatience = 2 * time.Second

// tellLost warns of what the console could not show for want of room, and returns an error where nobody who reads it can
// be told.
func tellLost(console *workerlog.Console, log zerolog.Logger) error {
	lost := console.Lost()
	if len(lost) == 0 {
		return nil
	}
	err := console.TellLost(roomPatience)
	for _, l := range lost {
		log.Warn().Str("stream", l.Stream).Int64("bytes", l.Bytes).Err(l.Err).Msg("output was lost: the console had no room")
	}
	return err
}

// runJob wires the packages together and runs the agent; the report has what the agent knows. When it returns nothing
// of the job is left, and all of its output has been written.
func runJob(ctx context.Context, t *told, cfg *config.Config, lifeline *guard.Lifeline, console *workerlog.Console, lines io.Writer, seen *lookout, log zerolog.Logger) (agent.RunResult, report.Report, error) {
	plan, err := prepare(ctx, cfg, lifeline, seen, log)
	if err != nil {
		return agent.RunResult{}, report.Report{}, err
	}
	defer plan.close(ctx, log)
	if err := preflight(ctx, cfg, log); err != nil {
		return agent.RunResult{}, report.Report{}, err
	}
	supervisor, err := procs.NewSupervisor(procs.Options{Console: console, Workers: cfg.NprocPerNode, Logger: log, Track: plan.gpus != nil, Late: lifeline.DeadlinePassed})
	if err != nil {
		return agent.RunResult{}, report.Report{}, err
	}
	defer func() { _ = supervisor.Close() }() // fails only where processes do not die, which Run has told
	a, err := plan.agent(t, cfg, supervisor, lines, seen, log)
	if err != nil {
		return agent.RunResult{}, report.Report{}, err
	}
	seen.attach(a, plan.gpus)
	result, err := a.Run(ctx)
	rep := a.Report(result)
	rep.LogDir = plan.logs.Path()
	return result, rep, err
}

// newLogger makes elasticrun's own log, and the queue through which it and the
// events take their way, so that a console nobody reads never holds up the
// agent or the store. When the queue is full, its oldest lines are lost. Close writes out the rest.
// What warns is told to heard as well, whatever the level, unless that is nil.
func newLogger(format string, level zerolog.Level, stderr io.Writer, heard *warned) (log zerolog.Logger, lines io.WriteCloser) {
	stderr = struct{ io.Writer }{stderr} // which Close leaves open
	queue := &lineQueue{stderr: stderr}
	queue.Writer = diode.NewWriter(stderr, 1000, 0, func(missed int) { queue.lost.Add(int64(missed)) })
	var out io.Writer = plainJSONWriter{queue}
	if format != "json" {
		out = zerolog.ConsoleWriter{
			Out: queue, TimeFormat: time.DateTime, NoColor: !term.IsTerminal(int(os.Stderr.Fd())),
			FormatPrepare: plainFields,
		}
	}
	if heard != nil {
		out = zerolog.MultiLevelWriter(&zerolog.FilteredLevelWriter{Writer: zerolog.LevelWriterAdapter{Writer: out}, Level: level}, heard)
		level = min(level, zerolog.WarnLevel)
	}
	log = zerolog.New(out).Level(level).With().Timestamp().Logger()
	return log, queue
}

// lineQueue counts what it has to drop.
type lineQueue struct {
	diode.Writer
	stderr io.Writer
	lost   atomic.Int64
}

// Close writes out what is queued and says how much is not.
func (q *lineQueue) Close() error {
	err := q.Writer.Close()
	if n := q.lost.Load(); n > 0 {
		_, _ = fmt.Fprintf(q.stderr, "elasticrun: %d lines of elasticrun's own log and events were lost: the console was not read in time\n", n)
	}
	return err
}

// explain puts an address that a store cannot have into terms of the flags, and a port that is taken in terms of
// who has it.
func explain(cfg *config.Config, err error) error {
	if taken, ok := errors.AsType[*elastic.PortsTakenError](err); ok {
		return &config.UsageError{Where: "--rdzv-endpoint=" + cfg.Rendezvous.Endpoint, Problem: noneFree(taken)}
	}
	var busy *rdzv.ListenError
	if !errors.As(err, &busy) {
		return err
	}
	port, addr, free := fmt.Sprintf("--master-port=%d", busy.Port), "--master-addr="+busy.Addr, ", or leave the flag out to get a free one"
	ports := cfg.Rendezvous.WorkerStorePorts
	switch {
	case cfg.MaxNodes > 1 && slices.Contains(cfg.Rendezvous.Endpoints, config.HostPort{Host: busy.Addr, Port: busy.Port}):
		port, addr, free = "--rdzv-endpoint="+cfg.Rendezvous.Endpoint, "--rdzv-endpoint="+cfg.Rendezvous.Endpoint, " for all nodes"
	case ports != config.PortRange{} && busy.Port == ports.Low:
		port = "--worker-store-port=" + elastic.Ports(ports).String()
	}
	if busy.Addr == cfg.Rendezvous.LocalAddr {
		addr = "--local-addr=" + busy.Addr
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &config.UsageError{Where: port, Problem: cannotListen(busy.Addr, busy.Port, busy.Err) + free}
	case errors.Is(err, syscall.EACCES):
		return &config.UsageError{Where: port, Problem: cannotListen(busy.Addr, busy.Port, busy.Err)}
	default:
		return &config.UsageError{Where: addr, Problem: cannotListen(busy.Addr, busy.Port, busy.Err)}
	}
}

// noneFree says who has each of the ports that the rendezvous could have been at, and what to do.
func noneFree(taken *elastic.PortsTakenError) string {
	const most = 4 // of the ports that are named
	named := taken.Ports[:min(len(taken.Ports), most)]
	texts := make([]string, len(named))
	for i, t := range named {
		what, _ := obstacle(taken.Host, t.Port, t.Err)
		if number := strconv.Itoa(t.Port); !strings.Contains(what, number) {
			what = number + ": " + what
		}
		var other *coord.RefusedError
		if errors.As(t.Found, &other) && other.Reason == coord.ReasonRunID {
			what += ", the store of another job"
		}
		texts[i] = what
	}
	if more := len(taken.Ports) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return "the rendezvous can have none of its ports: " + strings.Join(texts, "; ") + "; end one of them, or name another port for all nodes"
}

// cannotListen says why nothing can listen on a port of a host, and what to do where the port is the cause.
func cannotListen(host string, port int, err error) string {
	what, advice := obstacle(host, port, err)
	if advice != "" {
		what += "; " + advice
	}
	return what
}

// obstacle says why nothing can listen on a port of a host, and what to do; no advice where the port is not the cause.
func obstacle(host string, port int, err error) (what, advice string) {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		holder := "the port is taken"
		addr, _ := netip.ParseAddr(host) // a name may stand for any of this machine's
		if owner, ownerErr := topology.PortOwner(addr, port); ownerErr == nil {
			holder = owner.String()
		}
		return holder, "choose another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "not an address of this machine", ""
	case errors.Is(err, syscall.EACCES):
		return "this user may not listen there", "choose a port above 1023"
	default:
		return err.Error(), ""
	}
}

// machine answers config's questions about the hardware.
type machine struct{}

func (machine) CPUs() (int, error) { return topology.CPUs(), nil }

func (machine) GPUs() (int, error) {
	gpus, err := topology.GPUs(context.Background(), topology.GPUOptions{})
	return len(gpus), err
}
