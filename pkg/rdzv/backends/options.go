package backends

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Options are what the creators need beside [rdzv.Parameters]. The zero value is useful for jobs without restarts.
type Options struct {
	// Job has what all agents of a run agree on. The creators set Min, Max, Static, LastCall, JoinTimeout, JoinSettle, TTL
	// and ResultTTL from the parameters. Rejoin 0 means 40 s; it is at least twice the keep-alive time. An empty Grow
	// means [rounds.GrowNow].
	Job rounds.Job
	// Secret is what all agents of a run must know, for c10d and static. Empty means none.
	Secret []byte
	// ServerNames are names of which the store's certificate must have one, if the settings have certificates. None means
	// the endpoint's host.
	ServerNames []string
	// Settings are the backend's options, if the caller has read them already. Nil reads them from Parameters.Config.
	Settings *rdzvconf.Settings
	// StoreUsers may meet at stores that only this machine can reach. Nil names nobody but this user and root.
	StoreUsers *elastic.StoreUsers
	// LocalAddr is the address that this node announces, as --local-addr. Empty lets the other nodes find one.
	LocalAddr string
	// WorkerStorePorts are the ports that this node's worker store may take. Zero means any.
	WorkerStorePorts machine.Ports
	// WorkersHost makes the worker of rank 0 host the workers' store, as TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 does.
	WorkersHost bool
	// Ports are the ports at which the store of c10d may be, first choice first, the same at each of several endpoints.
	// Nil means the endpoint's port.
	Ports []int
	// OwnEndpoint is the index of the endpoint of c10d that is this node; -1 for none. Nil means that the agent finds out.
	OwnEndpoint *int
	// AdviseEndpoints says that the user can name further endpoints of c10d: the log of a job with one says what they add.
	AdviseEndpoints bool
	// Socket is the path of a Unix socket at which agents of one user on one machine meet, in place of the endpoint. Its
	// folder must belong to the user alone. It is for c10d; empty means none.
	Socket string
	// Identity distinguishes this node's agent from the others. The caller closes it after the handler's Shutdown. Nil
	// means that the creator takes one if there are several nodes, which Shutdown releases.
	Identity *machine.Identity
	// Launch is what started this agent, and Command distinguishes commands of workers. Both may be zero.
	Launch  rounds.Launch
	Command string
	// Linger is how long the host of the store waits at the end until the other nodes know the result. 0 means 300 s. It
	// is at least the keep-alive time.
	Linger time.Duration
	// Configure, if not nil, changes the options of each handler before it is made.
	Configure func(o *elastic.Options)
	// Logger is for warnings, and for the log of the handlers. The zero Logger discards everything.
	Logger zerolog.Logger
}

// Defaults of Options.
const (
	defaultRejoin = 40 * time.Second
	defaultLinger = 300 * time.Second
)

// input is a creator's input, parsed.
type input struct {
	rdzv.Parameters
	rdzvconf.Settings
	endpoints []hostPort // none only for one node
	rank      int        // -1: not given

	certificates *certfiles.Set // nil: none
}

// hostPort is the host and the port of one endpoint. The port is the backend's default if the endpoint has none.
type hostPort struct {
	host string
	port int
}

// read checks the parameters of a backend.
func (o *Options) read(p rdzv.Parameters) (input, error) {
	in := input{Parameters: p, rank: -1}
	if _, err := rdzv.NewParameters(p); err != nil {
		return in, err
	}
	if p.RunID == "" || strings.Contains(p.RunID, "/") {
		return in, fmt.Errorf("run id %q: must not be empty or contain a slash", p.RunID)
	}
	var err error
	if in.rank, err = p.Int("rank", -1); err != nil {
		return in, err
	}
	if in.Settings, err = o.settings(p); err != nil {
		return in, fmt.Errorf("rendezvous backend %s: %w", p.Backend, err)
	}
	if err := in.readEndpoint(); err != nil {
		return in, err
	}
	if p.MaxNodes > 1 && p.Backend != rdzv.BackendEtcd && o.Socket == "" && in.Certificates.Given() {
		if in.certificates, err = certfiles.Open(in.Certificates, o.Logger); err != nil {
			return in, fmt.Errorf("rendezvous backend %s: %w", p.Backend, err)
		}
	}
	return in, nil
}

// settings reads the backend's options.
func (o *Options) settings(p rdzv.Parameters) (rdzvconf.Settings, error) {
	if o.Settings != nil {
		return *o.Settings, nil
	}
	items := slices.DeleteFunc(rdzvconf.Items(p.Config), func(item rdzvconf.Item) bool { return item.Key == "rank" })
	settings, warnings, err := rdzvconf.Read(p.Backend, items, nil)
	for _, warning := range warnings {
		o.Logger.Warn().Msg("rendezvous backend " + p.Backend + ": " + warning)
	}
	return settings, err
}

// readEndpoint parses the endpoint and refuses one that several nodes cannot use.
func (in *input) readEndpoint() error {
	if in.Endpoint == "" && in.MaxNodes == 1 {
		return nil
	}
	texts, port := []string{in.Endpoint}, rdzvconf.C10dPort
	switch in.Backend {
	case rdzv.BackendEtcd:
		texts, port = strings.Split(in.Endpoint, ","), rdzvconf.EtcdPort
	case rdzv.BackendC10d:
		texts = strings.Split(in.Endpoint, ",")
	case rdzv.BackendStatic:
		port = 0
	}
	for _, text := range texts {
		host, given, err := rdzvconf.ParseEndpoint(strings.TrimSpace(text))
		switch {
		case in.Endpoint == "":
			err = errors.New("several nodes need an endpoint at which they meet, HOST[:PORT], the same on all nodes")
		case err == nil && given < 0:
			given = port
		}
		if err == nil && given == 0 && in.MaxNodes > 1 {
			err = errors.New("several nodes need a port that they all know")
		}
		if err != nil {
			return fmt.Errorf("rendezvous endpoint %q: %w", in.Endpoint, err)
		}
		in.endpoints = append(in.endpoints, hostPort{host, given})
	}
	if in.Backend == rdzv.BackendC10d && len(in.endpoints) > 1 && in.Voters < 3 {
		return fmt.Errorf("rendezvous endpoint %q: several endpoints need several agents that keep the job's store: "+
			"voters=3 or 5", in.Endpoint)
	}
	static := in.Backend == rdzv.BackendStatic && in.MaxNodes > 1
	if static && (in.rank < 0 || in.rank >= in.MaxNodes) {
		return fmt.Errorf("rendezvous option rank %d: the static backend needs the rank of this node, from 0 to %d", in.rank,
			in.MaxNodes-1)
	}
	return nil
}

// job returns the parameters that all agents of the run must share.
func (o *Options) job(in input) rounds.Job {
	j := o.Job
	j.Min, j.Max, j.Static = in.MinNodes, in.MaxNodes, in.Backend == rdzv.BackendStatic && in.MaxNodes > 1
	if j.Static {
		j.Min = j.Max
	}
	j.LastCall, j.JoinTimeout, j.JoinSettle = in.LastCall, in.JoinTimeout, in.JoinSettle
	j.TTL, j.ResultTTL = in.TTL(), in.ResultTTL
	j.Rejoin = max(cmp.Or(j.Rejoin, defaultRejoin), 2*j.TTL)
	j.Grow = cmp.Or(j.Grow, rounds.GrowNow)
	return j
}

func (at hostPort) String() string { return net.JoinHostPort(at.host, strconv.Itoa(at.port)) }
