package rpc

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The variables that [ReadEnvironment] reads.
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

// Environment is what a worker's environment says of RPC. A variable that is empty counts as not set.
type Environment struct {
	// GPUCount is the number of GPUs that the worker sees, by ELASTICRUN_GPU_COUNT, which the agent sets; 0 without it.
	GPUCount int
	// Address is where to listen, HOST:PORT, by ELASTICRUN_RPC_ADDR, which may leave the port out; "" without it. Port 0 is a free one.
	Address string
	// TLS are the files of ELASTICRUN_RPC_CERT, _KEY, _CA, and the name of _SERVER_NAME.
	TLS TLSFiles
	// MaxPayload is the limit of a payload in bytes, by ELASTICRUN_RPC_MAX_PAYLOAD; 0 without it.
	MaxPayload int
	// Group is the name of the group for a job that torchrun has restarted, and else "": see attemptGroup.
	Group string
}

// ReadEnvironment reads variables by lookup, which is [os.LookupEnv] in a process. Its error has a line for each bad value.
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
			refuse(envGPUCount, "must be a whole number of GPUs, 0 or more; elasticrun sets it where nobody else has")
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

// parseAddress reads HOST or HOST:PORT, an IPv6 address with brackets or, without a port, without them. The result has a port.
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
		return "", fmt.Errorf("%s is every address of a host, and the other workers need one to call; name one of this host's own", host)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q must be a whole number from 0, for a free one, to 65535", port)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// attemptGroup keeps the attempts of a job apart that find the same store. torchrun 2 keeps its store over restarts (elasticrun, which sets
// ELASTICRUN_ROUND, has a new one for each round). It counts them for each node by itself, so the count is good for one node only.
func attemptGroup(value func(name string) string) string {
	restarts, err := strconv.Atoi(value(envRestarts))
	if err != nil || restarts < 1 || value(envRound) != "" || value(envNodes) != "1" {
		return ""
	}
	return fmt.Sprintf("%s-attempt%d", DefaultGroup, restarts)
}
