package main

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// explainCommand says what the launch would do whose arguments these are.
func explainCommand(args []string, stdout io.Writer) error {
	cfg, asJSON, err := config.LoadExplain(args, machine{})
	if err != nil {
		return err
	}
	return exitCode(explainLaunch(cfg, asJSON, stdout))
}

// explainLaunch says what a launch would do, and does nothing of it. It returns the exit code: 2, with the launch's own line, where that would be refused.
func explainLaunch(cfg *config.Config, asJSON bool, stdout io.Writer) int {
	plan, refusal, err := imagine(context.Background(), cfg)
	if err != nil {
		return fail(conclude(agent.RunResult{}, explain(cfg, err)))
	}
	end := conclude(agent.RunResult{}, explain(cfg, refusal))
	plan.Refusal = end.problem()
	if err := write(stdout, plan, asJSON); err != nil {
		return fail(conclude(agent.RunResult{}, err))
	}
	return fail(end)
}

// write writes what has been found out, for people or as JSON. A reader who has gone has seen enough.
func write(stdout io.Writer, found interface {
	Text() string
	JSON() ([]byte, error)
}, asJSON bool,
) error {
	text := []byte(found.Text())
	if asJSON {
		var err error
		if text, err = found.JSON(); err != nil {
			return err
		}
	}
	if _, err := stdout.Write(text); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// imagine assembles the plan of a launch. err is why there is none; refusal is why the launch would end at once, although there is one.
func imagine(ctx context.Context, cfg *config.Config) (plan preview.Plan, refusal, err error) {
	records, err := openRecords(cfg, time.Now(), report.LookFile)
	if err != nil {
		return plan, nil, err
	}
	in := preview.Input{
		Version: version, Host: records.host, Config: cfg, Inherited: os.Environ(), Env: environment(cfg, zerolog.Nop()),
		WorkersHost: workersHost(),
	}
	if in.Spec, err = workerSpec(ctx, cfg); err != nil {
		return plan, nil, err
	}
	if !cfg.NoPython {
		path, source, err := topology.Python(os.LookupEnv)
		if err != nil {
			return plan, nil, err
		}
		in.Interpreter = &preview.Interpreter{Path: path, Source: source}
	}
	if _, err = handlerOf(ctx, cfg, elastic.Node{}, nil, nil, zerolog.Nop()); err != nil {
		return plan, nil, err
	}
	runID := cfg.RunID
	if preview.FreshRunID(cfg) {
		runID = "RUN_ID"
	}
	if in.Logs, err = workerlog.PlanLogDir(cfg.LogDir, runID); err != nil {
		return plan, nil, badLogDir(cfg, err)
	}
	if in.Endpoints, err = lookAround(ctx, cfg); err != nil {
		return plan, nil, err
	}
	if refusal = preview.Refusal(cfg, in.Endpoints); refusal == nil {
		refusal = portsTaken(ctx, cfg)
	}
	if preview.StoreThere(in.Endpoints) && refusal == nil {
		in.Finished, refusal = foresee(ctx, cfg)
	}
	plan, err = preview.Assemble(in)
	return plan, refusal, err
}

// lookAround finds out what is where the nodes of a job meet. A job of one node meets nobody.
func lookAround(ctx context.Context, cfg *config.Config) ([]preview.Endpoint, error) {
	lookUpNode(ctx, cfg, zerolog.Nop())
	r := cfg.Rendezvous
	if cfg.MaxNodes == 1 {
		return nil, nil
	}
	ask := preview.Connects
	if r.Backend != rdzv.BackendEtcd {
		ask = func(ctx context.Context, addr string) (coord.ProbeResult, error) {
			return coord.Probe(ctx, coord.DialOptions{
				Addr: addr, Version: version, RunID: cfg.RunID, Secret: []byte(r.Secret.Reveal()), Timeout: preview.LookBound,
			})
		}
	}
	at := r.Endpoints
	if len(at) == 0 && r.MasterAddr != "" { // static, by the master address
		at = []config.HostPort{{Host: r.MasterAddr, Port: r.MasterPort}}
	}
	if len(at) == 1 && len(r.Ports) > 1 {
		host := at[0].Host
		at = nil
		for _, port := range r.Ports {
			at = append(at, config.HostPort{Host: host, Port: port})
		}
	}
	return preview.Look(ctx, at, ask)
}

// foresee finds out whether the run id is that of a finished run, and what this launch would do then. What cannot be found out is left out.
func foresee(ctx context.Context, cfg *config.Config) (line string, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, preview.LookBound)
	defer cancel()
	identity, err := elastic.PredictIdentity(cfg.Rendezvous.Hint)
	if err != nil {
		return "", nil
	}
	r := cfg.Rendezvous
	ports := r.Ports
	if len(ports) == 0 {
		ports = []int{r.Endpoints[0].Port}
	}
	access := &elastic.C10d{RunID: cfg.RunID, Version: version, Host: r.Endpoints[0].Host, Ports: ports, Secret: []byte(r.Secret.Reveal())}
	store, err := access.OpenObserver(ctx, visitTTL)
	if err != nil {
		return "", nil
	}
	defer func() { _ = store.Close(ctx) }()
	line, refusal, err = elastic.Foresee(ctx, store, cfg.RunID, nodeOf(cfg, elastic.Node{Identity: identity}))
	if err != nil {
		return "", nil
	}
	return line, refusal
}

// portsTaken finds out, without listening, whether the ports are free that this node's worker store was given. The error is the one that listening
// would have.
func portsTaken(ctx context.Context, cfg *config.Config) error {
	r := cfg.Rendezvous
	host, ports := r.LocalAddr, r.WorkerStorePorts
	switch {
	case cfg.MaxNodes == 1:
		host, ports = r.MasterAddr, config.PortRange{Low: r.MasterPort, High: r.MasterPort}
	case r.Backend == rdzv.BackendStatic:
		return nil // it is at the endpoint
	}
	addr, err := ownAddr(ctx, host)
	if err != nil {
		return &rdzv.ListenError{Addr: host, Port: ports.Low, Err: err}
	}
	for port := ports.Low; port <= ports.High; port++ {
		if owner, err := topology.PortOwner(addr, port); port == 0 || err != nil || !owner.Listens() {
			return nil
		}
	}
	if ports == (config.PortRange{}) {
		return nil
	}
	return &rdzv.ListenError{Addr: host, Port: ports.Low, Err: syscall.EADDRINUSE}
}

// ownAddr is the address that host means on this machine; zero for any. It is EADDRNOTAVAIL where host is another one.
func ownAddr(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, preview.LookBound)
	defer cancel()
	e, err := elastic.Resolve(ctx, host, 1)
	if err != nil {
		return netip.Addr{}, err
	}
	ifaces, err := elastic.Interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	local := elastic.Local(e.Addrs, ifaces)
	if len(local) == 0 {
		return netip.Addr{}, syscall.EADDRNOTAVAIL
	}
	return local[0], nil
}
