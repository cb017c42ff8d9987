package preview

import (
	"context"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/records"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Build returns the plan of a launch. err says why there is none. refusal says why the launch would be refused although
// there is a plan.
func Build(ctx context.Context, cfg *config.Config, version string) (plan Plan, refusal, err error) {
	files, err := records.Open(cfg, version, time.Now(), report.CheckFilePermissions)
	if err != nil {
		return plan, nil, err
	}
	in := input{
		Version: version, Host: files.Host, Config: cfg, Inherited: os.Environ(),
		Env:         workerspec.Environment(cfg, zerolog.Nop()),
		WorkersHost: backends.WorkerHostsStore(),
	}
	if in.Spec, err = workerspec.New(ctx, cfg); err != nil {
		return plan, nil, err
	}
	if !cfg.NoPython {
		path, source, err := interpreter.Find(os.LookupEnv)
		if err != nil {
			return plan, nil, err
		}
		in.Interpreter = inspect(path, source)
	}
	if _, err = backends.New(ctx, cfg, backends.Options{Logger: zerolog.Nop()}, nil); err != nil {
		return plan, nil, err
	}
	runID := cfg.RunID
	if freshRunID(cfg) {
		runID = "RUN_ID"
	}
	if in.Logs, err = workerlog.PlanLogDir(cfg.LogDir, runID); err != nil {
		return plan, nil, workerspec.LogDirError(cfg, err)
	}
	if in.Endpoints, err = ProbeEndpoints(ctx, cfg, version); err != nil {
		return plan, nil, err
	}
	if refusal = workerspec.CheckEndpoint(ctx, cfg); refusal == nil {
		refusal = Refusal(cfg, in.Endpoints)
	}
	if refusal == nil {
		refusal = listen.CheckPorts(ctx, cfg)
	}
	if storeFound(in.Endpoints) && refusal == nil {
		in.Finished, refusal = checkFinished(ctx, cfg, version, in.Endpoints[0].Socket)
	}
	plan, err = assemble(in)
	return plan, refusal, err
}

// inspect describes an interpreter by its files; it is not started.
func inspect(path, source string) *Interpreter {
	in := interpreter.Inspect(path, os.LookupEnv)
	return &Interpreter{
		Path: path, Source: source, PythonVersion: in.Python,
		Torch: in.Has("torch").String(), TorchVersion: in.Version("torch"),
	}
}

// ProbeEndpoints finds out what listens at each candidate endpoint of the rendezvous. A job of one node has none.
func ProbeEndpoints(ctx context.Context, cfg *config.Config, version string) ([]Endpoint, error) {
	workerspec.ResolveNode(ctx, cfg, zerolog.Nop())
	r := cfg.Rendezvous
	if cfg.MaxNodes == 1 {
		return nil, nil
	}
	opts := coord.DialOptions{
		Version: version, RunID: cfg.RunID, Secret: []byte(r.Secret.Reveal()), Timeout: probeTimeout,
	}
	var err error
	if opts.Certificates, err = backends.Certificates(r, zerolog.Nop()); err != nil {
		return nil, err
	}
	opts.ServerNames = r.StoreNames()
	if r.Local {
		socket, err := backends.LocalSocket(cfg)
		if err != nil {
			return nil, err
		}
		return []Endpoint{probeSocket(ctx, socket, opts)}, nil
	}
	probe := connectOnly
	if r.Backend != rdzv.BackendEtcd {
		probe = func(ctx context.Context, addr string) (coord.ProbeResult, error) {
			opts := opts
			opts.Addr = addr
			return coord.Probe(ctx, opts)
		}
	}
	at := r.Endpoints
	if len(at) == 0 && r.MasterAddr != "" { // the static backend by --master-addr
		at = []config.HostPort{{Host: r.MasterAddr, Port: r.MasterPort}}
	}
	if len(r.Ports) > 1 {
		hosts := at
		at = nil
		for _, h := range hosts {
			for _, port := range r.Ports {
				at = append(at, config.HostPort{Host: h.Host, Port: port})
			}
		}
	}
	return probeAll(ctx, at, probe)
}

// checkFinished finds out whether a finished run has this run id, and what this launch would do then. It returns
// nothing if the store does not answer in time. socket is the store's Unix socket; empty for none.
func checkFinished(ctx context.Context, cfg *config.Config, version, socket string) (line string, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	identity, err := machine.PredictIdentity(cfg.Rendezvous.Hint)
	if err != nil {
		return "", nil
	}
	r := cfg.Rendezvous
	access := &elastic.C10d{
		RunID: cfg.RunID, Version: version, Ports: r.Ports, Socket: socket, Secret: []byte(r.Secret.Reveal()),
	}
	if socket == "" {
		hosts := backends.StoreHosts(r)
		access.Host, access.Ports, access.More, access.ServerNames = hosts[0].Host, hosts[0].Ports, hosts[1:], r.StoreNames()
		if access.Certificates, err = backends.Certificates(r, zerolog.Nop()); err != nil {
			return "", err
		}
	}
	store, err := access.OpenObserver(ctx, coord.RoleObserver, backends.VisitTTL)
	if err != nil {
		return "", nil
	}
	defer func() { _ = store.Close(ctx) }()
	line, refusal, err = elastic.CheckFinished(ctx, store, cfg.RunID, backends.Node(cfg, rounds.Node{Identity: identity}))
	if err != nil {
		return "", nil
	}
	return line, refusal
}
