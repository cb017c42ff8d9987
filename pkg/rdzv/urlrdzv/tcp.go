package urlrdzv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/kvstore/tcpstore"
)

// tcpRendezvous has the Handlers of tcp:// and env://, which differ in the source of the address.
type tcpRendezvous struct {
	lookup  func(name string) (string, bool)
	servers sharedServers
}

// endpoint is the address of the store.
type endpoint struct {
	host string
	port int
}

func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// tcp is the Handler of tcp://.
func (r *tcpRendezvous) tcp(ctx context.Context, url string) (*Result, error) {
	l, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	at, err := l.endpoint()
	if err != nil {
		return nil, err
	}
	self, err := parsePosition(l.parameter)
	if err != nil {
		return nil, err
	}
	return r.connect(ctx, at, self, l)
}

// env is the Handler of env://. It reads from the environment what the query does not have.
func (r *tcpRendezvous) env(ctx context.Context, url string) (*Result, error) {
	l, err := parseURL(url)
	switch {
	case err != nil:
		return nil, err
	case l.authority != "" || l.path != "" && l.path != "/":
		return nil, fmt.Errorf("%q names an address, which MASTER_ADDR and MASTER_PORT are for; write env://", url)
	}
	self, err := parsePosition(func(name string) (setting, error) {
		if value, ok := l.query[name]; ok {
			return setting{name: name, text: value}, nil
		}
		return r.variable(strings.ToUpper(name))
	})
	if err != nil {
		return nil, err
	}
	addr, err := r.variable("MASTER_ADDR")
	if err != nil {
		return nil, err
	}
	text, err := r.variable("MASTER_PORT")
	if err != nil {
		return nil, err
	}
	port, err := parsePort(text)
	if err != nil {
		return nil, err
	}
	host := trimBrackets(addr.text)
	if host == "" || strings.ContainsAny(host, "@/ ") {
		return nil, addr.invalid("must be the name or address of rank 0's host")
	}
	return r.connect(ctx, endpoint{host: host, port: port}, self, l)
}

// variable returns a setting of the environment. As in torch, an empty variable counts as not set.
func (r *tcpRendezvous) variable(name string) (setting, error) {
	value, _ := r.lookup(name)
	if value == "" {
		return setting{}, fmt.Errorf("environment variable %s expected, but not set: elasticrun and torchrun set it",
			name)
	}
	return setting{name: name, text: value}, nil
}

// endpoint parses HOST:PORT.
func (l parsedURL) endpoint() (endpoint, error) {
	host, text, err := net.SplitHostPort(l.authority)
	if err != nil || text == "" {
		return endpoint{}, fmt.Errorf("port number missing in %q; write tcp://HOST:PORT, and an IPv6 address in brackets",
			l.authority)
	}
	if host == "" {
		return endpoint{}, fmt.Errorf("host missing in %q; write tcp://HOST:PORT with rank 0's address", l.authority)
	}
	if strings.ContainsAny(host, "@ ") {
		return endpoint{}, fmt.Errorf("%q is no host; write tcp://HOST:PORT with rank 0's address", host)
	}
	port, err := parsePort(setting{name: "port", text: text})
	return endpoint{host: host, port: port}, err
}

// generation returns the protocol version of the torch that hosts the store.
func (l parsedURL) generation() (tcpstore.Protocol, error) {
	switch text, ok := l.query["generation"]; {
	case !ok || text == "2":
		return tcpstore.ProtocolV2, nil
	case text == "1":
		return tcpstore.ProtocolV1, nil
	default:
		return 0, setting{name: "generation", text: text}.invalid(
			"must be 1 or 2, the major version of the torch that hosts the store")
	}
}

// connect connects this worker to the store, and hosts the store if that is its task.
func (r *tcpRendezvous) connect(ctx context.Context, at endpoint, self position, l parsedURL) (*Result, error) {
	generation, err := l.generation()
	if err != nil {
		return nil, err
	}
	release := func() error { return nil }
	hosting := self.rank == 0 && !r.agentServes(at)
	if hosting {
		if release, err = r.servers.acquire(ctx, at.port); err != nil {
			return nil, err
		}
	}
	client, err := tcpstore.Dial(ctx, at.String(), tcpstore.ClientOptions{
		Protocol: generation, Workers: self.worldSize, Host: hosting,
	})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return &Result{
		Store: client, Rank: self.rank, WorldSize: self.worldSize,
		Release: func() error { return errors.Join(client.Close(), release()) },
	}, nil
}

// agentServes reports whether an agent hosts the store at this endpoint. As in torch 2.14, the variable concerns only
// the agent's own address. At any other address rank 0 hosts the store.
func (r *tcpRendezvous) agentServes(at endpoint) bool {
	use, _ := r.lookup("TORCHELASTIC_USE_AGENT_STORE")
	addr, _ := r.lookup("MASTER_ADDR")
	text, _ := r.lookup("MASTER_PORT")
	port, err := strconv.Atoi(text)
	return use == "True" && strings.EqualFold(trimBrackets(addr), at.host) && err == nil && port == at.port
}

// trimBrackets returns a variable's host. An IPv6 address may have brackets.
func trimBrackets(addr string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(addr), "["), "]")
}
