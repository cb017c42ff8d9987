package rpc

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Environment variables that [ReadEnvironment] reads.
const (
	envGPUCount   = "ELASTICRUN_GPU_COUNT"
	envAddr       = "ELASTICRUN_RPC_ADDR"
	envCert       = "ELASTICRUN_RPC_CERT"
	envKey        = "ELASTICRUN_RPC_KEY"
	envCA         = "ELASTICRUN_RPC_CA"
	envServerName = "ELASTICRUN_RPC_SERVER_NAME"
	envMaxPayload = "ELASTICRUN_RPC_MAX_PAYLOAD"

	envRound    = "ELASTICRUN_ROUND"
	envRestarts = "TORCHELASTIC_RESTART_COUNT"
	envNodes    = "GROUP_WORLD_SIZE"
)

// Environment holds the RPC settings from the environment variables of a worker. An empty variable counts as unset.
type Environment struct {
	// GPUCount is the number of GPUs that the worker sees, from ELASTICRUN_GPU_COUNT, which elasticrun sets. 0 means
	// unset or no GPU. [Init] counts the GPUs itself if the variable is unset.
	GPUCount int
	// Address is the address HOST:PORT to listen on, from ELASTICRUN_RPC_ADDR, where the port is optional. Port 0 means
	// any free port. "" means unset.
	Address string
	// TLS holds ELASTICRUN_RPC_CERT, ELASTICRUN_RPC_KEY, ELASTICRUN_RPC_CA and ELASTICRUN_RPC_SERVER_NAME.
	TLS TLSFiles
	// MaxPayload is the limit of a payload in bytes, from ELASTICRUN_RPC_MAX_PAYLOAD. 0 means unset.
	MaxPayload int
	// Group is the name of the group after a restart by torchrun, which keeps its store; otherwise "".
	Group string
}

// ReadEnvironment reads the variables with lookup, usually [os.LookupEnv]. Its error has one line per invalid value.
func ReadEnvironment(lookup func(name string) (value string, ok bool)) (Environment, error) {
	var e Environment
	var bad []error
	value := func(name string) string {
		text, _ := lookup(name)
		return text
	}
	refuse := func(name, format string, args ...any) {
		bad = append(bad, fmt.Errorf("%s=%q: %s", name, value(name), fmt.Sprintf(format, args...)))
	}
	var err error
	if text := value(envGPUCount); text != "" {
		if e.GPUCount, err = strconv.Atoi(text); err != nil || e.GPUCount < 0 {
			refuse(envGPUCount, "must be a whole number of GPUs, 0 or more; elasticrun sets it if it is unset")
		}
	}
	if text := value(envAddr); text != "" {
		if e.Address, err = parseAddress(text); err != nil {
			refuse(envAddr, "%v", err)
		}
	}
	if text := value(envMaxPayload); text != "" {
		if e.MaxPayload, err = strconv.Atoi(text); err != nil || e.MaxPayload < 1 || e.MaxPayload > largestPayload {
			refuse(envMaxPayload, "must be a whole number of bytes from 1 to %d", largestPayload)
		}
	}
	e.Group = attemptGroup(value)
	e.TLS = TLSFiles{Cert: value(envCert), Key: value(envKey), CA: value(envCA), ServerName: value(envServerName)}
	if err := e.TLS.check(envCert, envKey, envCA, envServerName); err != nil {
		bad = append(bad, err)
	}
	if len(bad) > 0 {
		return Environment{}, errors.Join(bad...)
	}
	return e, nil
}

// parseAddress parses HOST or HOST:PORT. An IPv6 address needs brackets if a port follows. The result always has a
// port.
func parseAddress(text string) (string, error) {
	malformed := errors.New("must be HOST or HOST:PORT, with an IPv6 address in brackets")
	host, port := text, "0"
	if _, err := netip.ParseAddr(text); err != nil && strings.Contains(text, ":") {
		if strings.HasSuffix(text, "]") {
			text += ":0"
		}
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", malformed
		}
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case host == "" || strings.ContainsAny(host, "/@ []") || err != nil && strings.Contains(host, ":"):
		return "", malformed
	case err == nil && addr.IsUnspecified():
		return "", fmt.Errorf("%s means all addresses of the host, but other workers need one address to call; "+
			"use an address of this host", host)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q must be a whole number from 0 (any free port) to 65535", port)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// attemptGroup returns a group name of its own for each attempt of a job whose attempts share a store. torchrun 2 keeps
// its store over restarts. elasticrun, which sets ELASTICRUN_ROUND, uses a new store for each round. torchrun counts
// restarts on each node separately, so the count is valid for a job of one node only.
func attemptGroup(value func(name string) string) string {
	restarts, err := strconv.Atoi(value(envRestarts))
	if err != nil || restarts < 1 || value(envRound) != "" || value(envNodes) != "1" {
		return ""
	}
	return fmt.Sprintf("%s-attempt%d", DefaultGroup, restarts)
}
