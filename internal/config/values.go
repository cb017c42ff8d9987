package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/bytesize"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// This file has the parsers of single values. Their errors are clauses that follow the name of the setting.

// Upper bounds far above any real job. A larger value is a typing error.
const (
	maxNodes       = 1 << 20
	maxProcPerNode = 1 << 16
	maxRestarts    = 1 << 30
	maxBytes       = 1 << 50
	maxMultiple    = 1 << 20
)

const (
	minStoreMemory = 1 << 20 // a store with less memory is of no use
	minLogSize     = 4 << 10 // smaller log files only cost time
	maxLaunchID    = 256     // bytes; the ids of schedulers are much shorter
)

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func notEmpty(s string) (string, error) {
	if s == "" {
		return "", errors.New("must not be empty")
	}
	return s, nil
}

// oneOf accepts the listed values only.
func oneOf(values ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if slices.Contains(values, s) {
			return s, nil
		}
		return "", errors.New("must be one of " + strings.Join(values, ", "))
	}
}

// between parses a whole number in [low, high].
func between(low, high int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return 0, errors.New("must be a whole number")
		case err != nil || n < low || n > high:
			return 0, fmt.Errorf("must be between %d and %d", low, high)
		}
		return n, nil
	}
}

// parseSeconds is seconds.Parse for values with blanks around them.
func parseSeconds(s string) (time.Duration, error) { return seconds.Parse(strings.TrimSpace(s)) }

// aboveZero is parseSeconds for times that must not be 0.
func aboveZero(s string) (time.Duration, error) {
	d, err := parseSeconds(s)
	if err == nil && d <= 0 {
		err = errors.New("must be above 0")
	}
	return d, err
}

// sizeFrom parses a number of bytes of at least low; name is low in words.
func sizeFrom(low int64, name string) func(string) (int64, error) {
	return func(s string) (int64, error) {
		n, err := bytesize.Parse(s)
		switch {
		case err != nil:
			return 0, err
		case n < low:
			return 0, errors.New("must be at least " + name)
		case n > maxBytes:
			return 0, errors.New("must be at most 1024TiB")
		}
		return n, nil
	}
}

// parsePortRange reads N or LO-HI; empty is no range.
func parsePortRange(s string) (PortRange, error) {
	if s == "" {
		return PortRange{}, nil
	}
	low, high, err := parseRange(s, "-", between(1, 65535))
	switch {
	case err != nil:
		return PortRange{}, errors.New("must be N or LO-HI, each a port between 1 and 65535")
	case low > high:
		return PortRange{}, fmt.Errorf("LO must not be above HI: did you mean %d-%d?", high, low)
	}
	return PortRange{low, high}, nil
}

// parseRange reads one number, or two with a separator between them.
func parseRange(s, separator string, parse func(string) (int, error)) (low, high int, err error) {
	first, last, isRange := strings.Cut(s, separator)
	if !isRange {
		last = first
	}
	low, errLow := parse(first)
	high, errHigh := parse(last)
	return low, high, errors.Join(errLow, errHigh)
}

func parseLaunchID(s string) (string, error) {
	if len(s) > maxLaunchID {
		return "", fmt.Errorf("must be at most %d bytes long", maxLaunchID)
	}
	return s, nil
}

// HostPort is an address to listen on or to connect to.
type HostPort struct {
	// Host is a name or an address, without brackets. For a listener, empty means every address of this machine.
	Host string
	// Port is the port. For a listener, 0 takes a free one.
	Port int
}

// String returns the address in the form of package net, with an IPv6 address in brackets.
func (a HostPort) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// optionalHost is parseHost for a flag that may be empty.
func optionalHost(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	return rdzvconf.ParseHost(s)
}

// parseListen reads HOST:PORT, or :PORT for every address.
func parseListen(s string) (HostPort, error) {
	s = strings.TrimSpace(s)
	if port, ok := strings.CutPrefix(s, ":"); ok && !strings.Contains(port, ":") {
		n, err := rdzvconf.ParsePort(port)
		return HostPort{Port: n}, err
	}
	host, port, err := rdzvconf.ParseEndpoint(s)
	switch {
	case err != nil:
		return HostPort{}, err
	case port < 0:
		return HostPort{}, fmt.Errorf("the port is missing: %s", net.JoinHostPort(host, "PORT"))
	}
	return HostPort{Host: host, Port: port}, nil
}

// parseStatusAddr reads HOST:PORT. Without a host it is the loopback address: a node's status is not for everybody.
func parseStatusAddr(s string) (HostPort, error) {
	at, err := parseListen(s)
	if err == nil && at.Host == "" {
		at.Host = "127.0.0.1"
	}
	return at, err
}

// isUnspecified recognizes 0.0.0.0 and ::.
func isUnspecified(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsUnspecified()
}

// parseGlobalRanks reads ranks that are global with and without a g.
func parseGlobalRanks(s string) (workerlog.RankSet, error) {
	set, err := workerlog.ParseRanks(s)
	for i := range set {
		set[i].Global = true
	}
	return set, err
}

// parseLevel reads a log level by its name in Python or zerolog, in any case.
func parseLevel(s string) (zerolog.Level, error) {
	level, known := map[string]zerolog.Level{
		"trace": zerolog.TraceLevel, "notset": zerolog.TraceLevel, "debug": zerolog.DebugLevel, "info": zerolog.InfoLevel,
		"warning": zerolog.WarnLevel, "warn": zerolog.WarnLevel, "error": zerolog.ErrorLevel,
		"critical": zerolog.FatalLevel, "fatal": zerolog.FatalLevel,
	}[strings.ToLower(s)]
	if !known {
		return 0, errors.New("must be one of trace, debug, info, warning, error, critical")
	}
	return level, nil
}
