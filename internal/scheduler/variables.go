package scheduler

import (
	"net"
	"strconv"
	"strings"
)

// maxNumber limits ranks and numbers of nodes. It is far above any real job.
const maxNumber = 1 << 20

// variables reads an adapter's variables and keeps the first problem. An empty variable counts as not set.
type variables struct {
	env Lookup
	err error
}

// text returns the value of the first variable that is set, and the variable's name.
func (v *variables) text(names ...string) (text, name string) {
	for _, name := range names {
		if text, _ := v.env(name); strings.TrimSpace(text) != "" {
			return strings.TrimSpace(text), name
		}
	}
	return "", ""
}

func (v *variables) set(name string) bool {
	text, _ := v.text(name)
	return text != ""
}

// number returns the value of the first variable that is set, which must be a whole number of at least low.
func (v *variables) number(low int, names ...string) Value[int] {
	text, name := v.text(names...)
	if name == "" {
		return Value[int]{}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > maxNumber {
		v.fail(problem(name, text, "must be a whole number between %d and %d", low, maxNumber))
		return Value[int]{}
	}
	return Value[int]{n, assignment(name, text)}
}

// fail records a problem, unless there is one already.
func (v *variables) fail(p *Problem) {
	if v.err == nil {
		v.err = p
	}
}

// masterAddr uses MASTER_ADDR, with MASTER_PORT if it is set, as the endpoint. Somebody has exported them for this
// job, so they override an endpoint that follows from a scheduler's list of nodes. They do not imply a number of
// nodes, because workers of other launchers inherit them.
func masterAddr(env Lookup, f *Facts) {
	v := variables{env: env}
	host, name := v.text("MASTER_ADDR")
	if name == "" {
		return
	}
	source := assignment(name, host)
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	endpoint := bare
	if port, name := v.text("MASTER_PORT"); name != "" {
		source += " " + assignment(name, port)
		endpoint = net.JoinHostPort(bare, port)
	}
	f.EndpointGiven = f.Endpoint.Is != endpoint
	if f.Endpoint.Known() && f.Endpoint.Is != bare { // for the same host, IsHost stays valid
		source += ", overriding " + f.Endpoint.Source
		f.IsHost, f.MoreHosts = Value[bool]{}, nil
	}
	f.Endpoint = Value[string]{endpoint, source}
}
