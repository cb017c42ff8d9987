package preview

import (
	"context"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/backends"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/launch"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/records"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/report"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Build assembles the plan of a launch. err is why there is none; refusal is why the launch would end at once, although there is one.
func Build(ctx context.Context, cfg *config.Config, version string) (plan Plan, refusal, err error) {
	files, err := records.Open(cfg, version, time.Now(), report.LookFile)
	if err != nil {
		return plan, nil, err
	}
	in := Input{
		Version: version, Host: files.Host, Config: cfg, Inherited: os.Environ(), Env: launch.Environment(cfg, zerolog.Nop()),
		WorkersHost: backends.WorkerHostsStore(),
	}
	if in.Spec, err = launch.WorkerSpec(ctx, cfg); err != nil {
		return plan, nil, err
	}
	if !cfg.NoPython {
		path, source, err := topology.Python(os.LookupEnv)
		if err != nil {
			return plan, nil, err
		}
		in.Interpreter = &Interpreter{Path: path, Source: source}
	}
	if _, err = backends.New(ctx, cfg, backends.Options{Logger: zerolog.Nop()}); err != nil {
		return plan, nil, err
	}
	runID := cfg.RunID
	if FreshRunID(cfg) {
		runID = "RUN_ID"
	}
	if in.Logs, err = workerlog.PlanLogDir(cfg.LogDir, runID); err != nil {
		return plan, nil, launch.LogDirError(cfg, err)
	}
	if in.Endpoints, err = FindEndpoints(ctx, cfg, version); err != nil {
		return plan, nil, err
	}
	if refusal = Refusal(cfg, in.Endpoints); refusal == nil {
		refusal = listen.PortsTaken(ctx, cfg)
	}
	if StoreThere(in.Endpoints) && refusal == nil {
		in.Finished, refusal = foresee(ctx, cfg, version)
	}
	plan, err = Assemble(in)
	return plan, refusal, err
}

// FindEndpoints finds out what is where the nodes of a job meet. A job of one node meets nobody.
func FindEndpoints(ctx context.Context, cfg *config.Config, version string) ([]Endpoint, error) {
	launch.ResolveNode(ctx, cfg, zerolog.Nop())
	r := cfg.Rendezvous
	if cfg.MaxNodes == 1 {
		return nil, nil
	}
	ask := Connects
	if r.Backend != rdzv.BackendEtcd {
		ask = func(ctx context.Context, addr string) (coord.ProbeResult, error) {
			return coord.Probe(ctx, coord.DialOptions{
				Addr: addr, Version: version, RunID: cfg.RunID, Secret: []byte(r.Secret.Reveal()), Timeout: LookBound,
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
	return Look(ctx, at, ask)
}

// foresee finds out whether the run id is that of a finished run, and what this launch would do then. What cannot be found out is left out.
func foresee(ctx context.Context, cfg *config.Config, version string) (line string, refusal error) {
	ctx, cancel := context.WithTimeout(ctx, LookBound)
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
	store, err := access.OpenObserver(ctx, backends.VisitTTL)
	if err != nil {
		return "", nil
	}
	defer func() { _ = store.Close(ctx) }()
	line, refusal, err = elastic.CheckFinished(ctx, store, cfg.RunID, backends.Node(cfg, elastic.Node{Identity: identity}))
	if err != nil {
		return "", nil
	}
	return line, refusal
}
