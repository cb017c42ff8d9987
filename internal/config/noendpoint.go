package config

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

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
