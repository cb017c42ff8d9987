package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// parseEndpoint splits HOST[:PORT]; port is -1 where there is none. An IPv6
// address with a port needs brackets. It follows torch 2.14
// (rendezvous/utils.py), except that an IPv6 address without brackets is a
// host, not a host and a port, and that other hosts hold no colon.
func parseEndpoint(endpoint string) (host string, port int, err error) {
	at := strings.LastIndexByte(endpoint, ':')
	_, noIP := netip.ParseAddr(endpoint)
	if at < 0 || strings.HasSuffix(endpoint, "]") || noIP == nil {
		host, err = parseHost(endpoint)
		return host, -1, err
	}
	if port, err = parsePort(endpoint[at+1:]); err != nil {
		return "", 0, err
	}
	host, err = parseHost(endpoint[:at])
	return host, port, err
}

func parsePort(text string) (int, error) {
	if len(text) > 5 || !isDigits(text) {
		return 0, fmt.Errorf("the port %q must be a number between 0 and 65535", text)
	}
	port, err := between(0, 65535)(text)
	if err != nil {
		return 0, fmt.Errorf("the port %s %w", text, err)
	}
	return port, nil
}

// parseHost checks a host name or address and takes off the brackets that an
// IPv6 address may have.
func parseHost(s string) (string, error) {
	host := strings.TrimSpace(s)
	inner, open := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	addr, err := netip.ParseAddr(inner)
	switch {
	case err == nil && open == closed && (!open || addr.Is6()):
		return inner, nil
	case open || closed:
		return "", errors.New("brackets must enclose an IPv6 address, such as [::1]")
	case host == "" || strings.ContainsFunc(host, notHostRune):
		return "", fmt.Errorf("%q is not a host name or an address", host)
	}
	return host, nil
}

func notHostRune(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.", r)
}
