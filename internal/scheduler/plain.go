package scheduler

import (
	"net"
	"strings"
)

// masterAddr takes MASTER_ADDR, and MASTER_PORT if it is there, for the endpoint. Somebody has exported them for this
// job, so they go before an endpoint that follows from a scheduler's list of nodes. They say nothing of how many nodes
// there are: workers of another launcher inherit them.
func masterAddr(env Lookup, f *Facts) {
	v := variables{env: env}
	host, name := v.text("MASTER_ADDR")
	if name == "" {
		return
	}
	source := told(name, host)
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	endpoint := bare
	if port, name := v.text("MASTER_PORT"); name != "" {
		source += " " + told(name, port)
		endpoint = net.JoinHostPort(bare, port)
	}
	if f.Endpoint.Known() && f.Endpoint.Is != bare { // else the same machine, and it is known who that is
		source += ", before " + f.Endpoint.Source
		f.IsHost = Value[bool]{}
	}
	f.Endpoint = Value[string]{endpoint, source}
}
