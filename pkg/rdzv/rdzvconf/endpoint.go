package rdzvconf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// Default ports of endpoints that name none, as in torch.
const (
	C10dPort = 29400
	EtcdPort = 2379
)

// ParseEndpoint splits HOST[:PORT]; port is -1 if it is missing. An IPv6 address with a port needs brackets if the
// whole text could be an IPv6 address too, such as ::1:80. host has no brackets. It follows torch 2.14
// torch/distributed/elastic/rendezvous/utils.py with two differences: an IPv6 address without brackets is a host alone,
// and other hosts hold no colon.
func ParseEndpoint(endpoint string) (host string, port int, err error) {
	at := strings.LastIndexByte(endpoint, ':')
	_, noIP := netip.ParseAddr(endpoint)
	if at < 0 || strings.HasSuffix(endpoint, "]") || noIP == nil {
		if isPort(endpoint) { // the resolver would take it for an address
			return "", 0, noHost(endpoint)
		}
		host, err = ParseHost(endpoint)
		return host, -1, err
	}
	if at == 0 && isPort(endpoint[1:]) {
		return "", 0, noHost(endpoint[1:])
	}
	if port, err = ParsePort(endpoint[at+1:]); err != nil {
		return "", 0, cmp.Or(checkPath(endpoint), err)
	}
	host, err = ParseHost(endpoint[:at])
	return host, port, err
}

func isPort(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func noHost(port string) error {
	return fmt.Errorf("%s is a port without a host: write HOST:%[1]s, such as 127.0.0.1:%[1]s", port)
}

// checkPath refuses a URL and a path.
func checkPath(text string) error {
	switch {
	case strings.Contains(text, "//"):
		return fmt.Errorf("%q is a URL: write HOST:PORT only", text)
	case strings.Contains(text, "/"):
		return fmt.Errorf("%q has a path: write HOST:PORT only", text)
	}
	return nil
}

// ParsePort parses the port of a listener or an endpoint.
func ParsePort(text string) (int, error) {
	port, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err != nil || len(text) > 5:
		return 0, fmt.Errorf("the port %q must be a number between 0 and 65535", text)
	case port > 65535:
		return 0, fmt.Errorf("the port %s must be between 0 and 65535", text)
	}
	return int(port), nil
}

// ParseHost checks a host name or address and removes the brackets around an IPv6 address.
func ParseHost(s string) (string, error) {
	host := strings.TrimSpace(s)
	inner, open := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	addr, err := netip.ParseAddr(inner)
	switch {
	case err == nil && open == closed && (!open || addr.Is6()):
		return inner, nil
	case open || closed:
		return "", errors.New("brackets must enclose an IPv6 address, such as [::1]")
	case strings.Contains(host, "/"):
		return "", checkPath(host)
	case host == "" || strings.ContainsFunc(host, notHostRune):
		return "", fmt.Errorf("%q is not a host name or an address", host)
	}
	return host, nil
}

// IsLocalhost reports whether host is the name localhost. As in the name service, neither case nor a final dot counts.
func IsLocalhost(host string) bool {
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// IsLoopback reports whether each machine takes host for itself: it is localhost or a loopback address. host has no
// brackets.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return IsLocalhost(host) || err == nil && addr.Unmap().IsLoopback()
}

func notHostRune(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
}

// OnlyHere reports whether all agents are on this machine: the endpoint's host is a loopback address, and this agent
// may host the store there. An agent that may not host it (isHost) reaches another machine through the address, by a
// tunnel or a proxy.
func OnlyHere(host string, isHost *bool) bool { return IsLoopback(host) && (isHost == nil || *isHost) }
