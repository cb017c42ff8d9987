package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/scheduler"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// readEndpoints checks and parses the endpoint. The result is nil for static, for unknown backends, and for an endpoint
// that is not needed.
func readEndpoints(r *reader, in rendezvousFlags) []HostPort {
	const name = "rdzv-endpoint"
	backend := in.backend()
	switch {
	case r.err != nil || !isKnown(backend):
		return nil
	case in.Standalone || backend == rdzv.BackendC10d && in.Endpoint == "" && in.MaxNodes == 1:
		return []HostPort{{"localhost", 0}}
	case in.Endpoint == "" && backend != rdzv.BackendStatic && in.MaxNodes > 1:
		in.failWithoutEndpoint(r)
		return nil
	case in.Endpoint == "":
		return nil
	}
	var endpoints []HostPort
	texts := []string{in.Endpoint}
	if backend != rdzv.BackendStatic { // members of etcd, or nodes that keep the store together
		texts = strings.Split(in.Endpoint, ",")
	}
	for _, text := range texts {
		host, port, err := rdzvconf.ParseEndpoint(strings.TrimSpace(text))
		at := HostPort{host, port}
		switch {
		case err != nil:
			r.fail(name, err.Error())
		case port < 0 && backend == rdzv.BackendStatic:
			r.fail(name, "the static backend needs HOST:PORT")
		case port < 0:
			at.Port = map[string]int{rdzv.BackendEtcd: rdzvconf.EtcdPort, rdzv.BackendC10d: rdzvconf.C10dPort}[backend]
		case port == 0 && in.MaxNodes > 1 && backend != rdzv.BackendStatic:
			r.fail(name, "several nodes need a port that they all know")
		}
		if in.MaxNodes > 1 && isUnspecified(host) {
			r.fail(
				name,
				printable.Quote(host)+" is no address that other nodes can reach: give an address of this machine, or a host name",
			)
		}
		endpoints = append(endpoints, at)
	}
	return endpoints
}

// maxEndpoints is how many endpoints of c10d there can be.
const maxEndpoints = 5

// checkEndpoints checks several endpoints of c10d, which only help if the agents keep the store together.
func (c *Config) checkEndpoints(r *reader) {
	const name = "rdzv-endpoint"
	v := &c.Rendezvous
	if v.Backend != rdzv.BackendC10d || len(v.Endpoints) < 2 {
		return
	}
	for i, at := range v.Endpoints {
		if slices.Contains(v.Endpoints[:i], at) {
			r.fail(name, at.String()+" is there twice")
		}
		if at.Host == LocalEndpoint {
			r.fail(name, "local is for agents of one machine: give it alone, or name machines")
		}
		if rdzvconf.OnlyHere(at.Host, v.IsHost) { // each node would take itself for it, and begin a store
			r.fail(name, at.Host+" means another machine on each node: name the machine, or give "+at.Host+" alone for agents "+
				"of one machine")
		}
	}
	switch inferred := r.settings[name].Source.Kind == FromScheduler; {
	case len(v.Endpoints) > maxEndpoints:
		r.fail(name, fmt.Sprintf("has %d endpoints: give at most %d", len(v.Endpoints), maxEndpoints))
	case c.MaxNodes > 1 && v.Voters > 1:
	case inferred:
		v.Endpoints = v.Endpoints[:1]
		v.Endpoint, _, _ = strings.Cut(v.Endpoint, ",")
	case v.Voters == 1:
		r.fail(name, "has several endpoints, but with voters=1 in --rdzv-conf only the first node keeps the job's store: "+
			"give one endpoint, or leave voters out")
	default:
		r.fail(name, "has several endpoints, but only jobs of several nodes keep their store on several: give one "+
			"endpoint, or a larger maximum of --nnodes")
	}
}

// ChoosesEndpoints reports whether the user named the endpoints and could name further nodes. With Slurm and Kubernetes
// he could not, because they choose the nodes.
func (c *Config) ChoosesEndpoints() bool {
	return c.Given("rdzv-endpoint") && c.Scheduler != scheduler.Slurm && c.Scheduler != scheduler.Kubernetes
}

// failWithoutEndpoint refuses a job of several nodes that has no endpoint.
func (in rendezvousFlags) failWithoutEndpoint(r *reader) {
	const name, need = "nnodes", "several nodes need an endpoint at which they meet: "
	switch try := in.Try(); {
	case in.backend() == rdzv.BackendEtcd:
		r.fail(name, need+"give --rdzv-endpoint=HOST[:PORT], the address of etcd")
	case in.NoEndpoint != "":
		r.fail(name, need+in.NoEndpoint)
	case len(try) == 0:
		r.fail(name,
			need+"give --rdzv-endpoint=local for several terminals of this machine, or HOST[:PORT], one of the nodes")
	default:
		r.fail(name,
			need+"type the first line in several terminals of this machine, or the second on every machine", try...)
	}
}

// withEndpoints returns this launch's command line with a local endpoint, and with this machine as the endpoint. The
// script and its arguments are the last words of the command line. It is empty if the command line is unknown.
func (from surroundings) withEndpoints(words int) []string {
	if len(from.self) < words+1 {
		return nil
	}
	given := from.self[1:]
	flags, command := given[:len(given)-words], given[len(given)-words:]
	if n := len(flags); n > 0 && flags[n-1] == "--" {
		flags, command = flags[:n-1], given[n-1:]
	}
	here := net.JoinHostPort(cmp.Or(from.host.Name, "HOST"), strconv.Itoa(rdzvconf.C10dPort))
	var lines []string
	for _, endpoint := range []string{LocalEndpoint, here} {
		line := []string{"elasticrun"}
		for _, word := range slices.Concat(flags, []string{"--rdzv-endpoint=" + endpoint}, command) {
			line = append(line, printable.ShellWord(word))
		}
		lines = append(lines, printable.Line(strings.Join(line, " ")))
	}
	return lines
}
