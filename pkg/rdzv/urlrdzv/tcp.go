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

// tcpRendezvous handles tcp:// and env://, which differ in where the address comes from.
type tcpRendezvous struct {
	lookup func(name string) (string, bool)
	hosts  hosts
}

// endpoint is where the store of a tcpRendezvous is.
type endpoint struct {
	host string
	port int
}

func (e endpoint) String() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

func (m *tcpRendezvous) tcp(ctx context.Context, url string) (*Result, error) {
	l, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	at, err := l.endpoint()
	if err != nil {
		return nil, err
	}
	self, err := findPlace(l.parameter)
	if err != nil {
		return nil, err
	}
	return m.join(ctx, at, self, l)
}

// env takes what the query does not say from the environment.
func (m *tcpRendezvous) env(ctx context.Context, url string) (*Result, error) {
	l, err := parseURL(url)
	switch {
	case err != nil:
		return nil, err
	case l.authority != "" || l.path != "" && l.path != "/":
		return nil, fmt.Errorf("%q names an address, which MASTER_ADDR and MASTER_PORT are for; write env://", url)
	}
	self, err := findPlace(func(name string) (setting, error) {
		if value, ok := l.query[name]; ok {
			return setting{name: name, text: value}, nil
		}
		return m.variable(strings.ToUpper(name))
	})
	if err != nil {
		return nil, err
	}
	addr, err := m.variable("MASTER_ADDR")
	if err != nil {
		return nil, err
	}
	text, err := m.variable("MASTER_PORT")
	if err != nil {
		return nil, err
	}
	port, err := parsePort(text)
	if err != nil {
		return nil, err
	}
	host := bare(addr.text)
	if host == "" || strings.ContainsAny(host, "@/ ") {
		return nil, addr.refuse("must be the name or address of rank 0's host")
	}
	return m.join(ctx, endpoint{host: host, port: port}, self, l)
}

// variable finds a setting in the environment. An empty one counts as not set, as in torch.
func (m *tcpRendezvous) variable(name string) (setting, error) {
	value, _ := m.lookup(name)
	if value == "" {
		return setting{}, fmt.Errorf("environment variable %s expected, but not set: elasticrun and torchrun set it", name)
	}
	return setting{name: name, text: value}, nil
}

// endpoint reads HOST:PORT.
func (l location) endpoint() (endpoint, error) {
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

// generation reads which torch hosts the store.
func (l location) generation() (tcpstore.Protocol, error) {
	switch text, ok := l.query["generation"]; {
	case !ok || text == "2":
		return tcpstore.ProtocolV2, nil
	case text == "1":
		return tcpstore.ProtocolV1, nil
	default:
		return 0, setting{name: "generation", text: text}.refuse(
			"must be 1 or 2, the major version of the torch that hosts the store")
	}
}

// join connects this worker to the store, which it hosts itself if it has to.
func (m *tcpRendezvous) join(ctx context.Context, at endpoint, self place, l location) (*Result, error) {
	generation, err := l.generation()
	if err != nil {
		return nil, err
	}
	release := func() error { return nil }
	hosting := self.rank == 0 && !m.agentServes(at)
	if hosting {
		if release, err = m.hosts.take(ctx, at.port); err != nil {
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

// agentServes tells whether an agent hosts a store at this endpoint. As in torch 2.14 the variable speaks of the
// agent's own address only: at any other, rank 0 hosts.
func (m *tcpRendezvous) agentServes(at endpoint) bool {
	use, _ := m.lookup("TORCHELASTIC_USE_AGENT_STORE")
	addr, _ := m.lookup("MASTER_ADDR")
	text, _ := m.lookup("MASTER_PORT")
	port, err := strconv.Atoi(text)
	return use == "True" && strings.EqualFold(bare(addr), at.host) && err == nil && port == at.port
}

// bare returns the host in a variable: an IPv6 address may have brackets.
func bare(addr string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(addr), "["), "]")
}
