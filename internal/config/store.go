package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/bytesize"
)

// Store is everything that elasticrun store was told, checked and resolved.
type Store struct {
	// Listen is where the store listens.
	Listen HostPort
	// Health is where HTTP answers whether it does; nil for nowhere.
	Health *HostPort
	// DataDir is the folder in which coordination outlives the store's process; empty for memory alone. Whether
	// it can be had is not checked here.
	DataDir string
	// Secret is what agents must know; empty for none.
	Secret Secret
	// MaxConns is the number of connections served at a time; 0 is no limit.
	MaxConns int
	// MaxMemory is the number of bytes that the store may take, at least 1 MiB.
	MaxMemory int64
	// StallTimeout is how long half a request may rest; above 0.
	StallTimeout time.Duration
	// Grace is how long requests under way may take to finish once the store is
	// to stop; 0 closes them at once.
	Grace time.Duration
	// LogFormat is auto, console or json.
	LogFormat string
	// LogLevel is the lowest level that is logged.
	LogLevel zerolog.Level
	// Warnings are one line each; the store logs them before it serves.
	Warnings []string
}

// HostPort is an address to listen on.
type HostPort struct {
	// Host is a name or an address, without brackets; empty for every address of
	// this machine.
	Host string
	// Port is the port; 0 takes a free one.
	Port int
}

// String returns it as package net takes it, an IPv6 address in brackets.
func (a HostPort) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// StoreFlags returns the table of elasticrun store.
func StoreFlags() []Flag {
	flags := []Flag{
		{
			Name: "listen", Kind: KindString, Default: "127.0.0.1:29400", Placeholder: "HOST:PORT",
			Help: "Where the store listens. :29400 is every address of this machine, for jobs on others; port 0 takes a free one.",
		},
		{
			Name: "health", Kind: KindString, Placeholder: "HOST:PORT",
			Help: "Answer HTTP there: GET /healthz tells whether the store answers, and what it counts. Default: nowhere.",
		},
		{
			Name: "data-dir", Kind: KindString, Placeholder: "DIR",
			Help: "Keep there what agents agree on, so that their jobs outlive a restart of the store. Default: in memory. Workers' keys are in memory always.",
		},
		{
			Name: "max-conns", Kind: KindInt, Default: "0", Placeholder: "N",
			Help: "Connections served at a time. For a further one the oldest that never said anything is closed, or itself. A worker of torch 1.13 needs two, of torch 2.x one. 0 is as many as files may be open.",
		},
		{
			Name: "max-memory", Kind: KindSpec, Default: "2GiB", Placeholder: "SIZE",
			Help: "About how much memory the store may take, such as 512MiB: three quarters for workers, a fifth for agents, the rest to lead their runs. Of each, one half is for what is stored, the other for requests and answers under way.",
		},
		{
			Name: "stall-timeout", Kind: KindSeconds, Default: "30", Placeholder: "SECONDS",
			Help: "How long a client may take for 64 KiB of a request. Silence between requests has no limit.",
		},
		{
			Name: "grace", Kind: KindSeconds, Default: "10", Placeholder: "SECONDS",
			Help: "How long requests under way may take to finish once the store is told to stop.",
		},
	}
	for _, name := range []string{"rdzv-secret-file", "log-format", "log-level", "help"} {
		f, _ := findFlag(Flags(), name)
		flags = append(flags, f)
	}
	for i := range flags {
		flags[i].Group, flags[i].CommandLineOnly = groupStore, true
	}
	return flags
}

// LoadStore resolves the arguments of elasticrun store, together with the environment variables of the
// log and the secret. Its errors are ErrHelp and *UsageError.
func LoadStore(args []string) (*Store, error) {
	p := argParser{flags: StoreFlags(), hint: "elasticrun store --help lists them"}
	line, err := p.split(args)
	if err != nil {
		return nil, err
	}
	if len(line.command) > 0 {
		return nil, &UsageError{Where: shown(line.command[0]), Problem: "elasticrun store takes flags only; to run a script of that name write ./store"}
	}
	l, err := newLayers(p.flags, line.options)
	if err != nil {
		return nil, err
	}
	return resolveStore(l.settings(), surroundings{env: os.LookupEnv, secret: readSecret})
}

func resolveStore(settings []Setting, from surroundings) (*Store, error) {
	r := &reader{settings: make(map[string]Setting, len(settings))}
	for _, s := range settings {
		r.settings[s.Name] = s
	}
	c := &Store{
		Listen:       read(r, "listen", parseListen),
		DataDir:      r.text("data-dir"),
		Secret:       agentsSecret(r, from),
		MaxConns:     read(r, "max-conns", between(0, math.MaxInt32)),
		MaxMemory:    read(r, "max-memory", parseMemory),
		StallTimeout: read(r, "stall-timeout", aboveZero),
		Grace:        read(r, "grace", seconds),
		LogFormat:    read(r, "log-format", logFormat()),
		LogLevel:     read(r, "log-level", parseLevel),
	}
	if r.given("health") {
		health := read(r, "health", parseListen)
		if c.Health = &health; health == c.Listen && health.Port != 0 {
			r.fail("health", "the store listens there; choose another port")
		}
	}
	if r.given("data-dir") && c.DataDir == "" {
		r.fail("data-dir", "must not be empty")
	}
	if r.err != nil {
		return nil, r.err
	}
	c.Warnings = r.warnings
	return c, nil
}

// parseListen reads HOST:PORT, or :PORT for every address.
func parseListen(s string) (HostPort, error) {
	s = strings.TrimSpace(s)
	if port, ok := strings.CutPrefix(s, ":"); ok && !strings.Contains(port, ":") {
		n, err := parsePort(port)
		return HostPort{Port: n}, err
	}
	host, port, err := parseEndpoint(s)
	switch {
	case err != nil:
		return HostPort{}, err
	case port < 0:
		return HostPort{}, fmt.Errorf("the port is missing: %s", net.JoinHostPort(host, "PORT"))
	}
	return HostPort{Host: host, Port: port}, nil
}

const (
	minMemory = 1 << 20 // with less a store is of no use
	maxMemory = 1 << 50 // what is larger is a typing error
)

func parseMemory(s string) (int64, error) {
	n, err := bytesize.Parse(s)
	switch {
	case err != nil:
		return 0, err
	case n < minMemory:
		return 0, errors.New("must be at least 1MiB")
	case n > maxMemory:
		return 0, errors.New("must be at most 1024TiB")
	}
	return n, nil
}
