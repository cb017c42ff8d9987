package coord

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A store that several hosts take turns to serve
//
// The hosts of such a store form its group. Each has an address of its own, all have the same instance id, secret and
// run, and one of them serves at a time. The others refuse clients with ReasonElsewhere and may name the address that
// serves. A client follows such a refusal only after its sender has proved that it knows the secret.

// elsewhereMessage is the message of a refusal with ReasonElsewhere. A colon, a space and the address that serves may
// follow it.
const elsewhereMessage = "another node serves the job's store now"

// leaderlessMessage is the message if the member knows no address that serves.
const leaderlessMessage = "the nodes that keep the job's store are choosing which one serves it, or too few of them " +
	"are left"

// elsewhereRefusal returns the refusal that names addr. It names no address that a client would not take.
func elsewhereRefusal(addr string) refusal {
	if !validAddr(addr) {
		return refusal{ReasonElsewhere, leaderlessMessage}
	}
	return refusal{ReasonElsewhere, elsewhereMessage + ": " + addr}
}

// addrInMessage returns the address in the message of a refusal with ReasonElsewhere, or "".
func addrInMessage(message string) string {
	addr, ok := strings.CutPrefix(message, elsewhereMessage+": ")
	if !ok || !validAddr(addr) {
		return ""
	}
	return addr
}

// validAddr reports whether addr is HOST:PORT with the name or the IP address of a host and the number of a port.
func validAddr(addr string) bool {
	const maxHost = 255 // bytes; that of DNS
	host, port, err := net.SplitHostPort(addr)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	return err == nil && notNumber == nil && number > 0 && host != "" && len(host) <= maxHost &&
		addr == printable(addr) && !strings.ContainsFunc(addr, unicode.IsSpace)
}

// servedAt returns the address that a member of the store's group has named in its refusal err, or "".
func servedAt(err error) string {
	if refused, ok := errors.AsType[*DialError](err); ok {
		return refused.servedAt
	}
	return ""
}

// decline returns the reason why this store serves no client with this hello now, or nil. The caller must not hold mu,
// because ServerOptions.Elsewhere may wait.
func (s *Server) decline(h hello) *refusal {
	if why := s.mismatch(h); why != nil {
		return why
	}
	if s.opts.Elsewhere == nil {
		return nil
	}
	addr, elsewhere := s.opts.Elsewhere()
	if !elsewhere {
		return nil
	}
	why := elsewhereRefusal(addr)
	return &why
}

// at returns the options for an address of the store's group.
func (o *DialOptions) at(addr string) *DialOptions {
	if addr == o.Addr {
		return o
	}
	other := *o
	other.Addr, other.Conn = addr, nil
	if o.Adapt != nil {
		o.Adapt(&other)
	}
	return &other
}

// maxHops is how many addresses follow tries because members of the store's group named them.
const maxHops = 4

// follow makes an attempt at the address of opts. While a member of the store's group answers that it does not serve
// now, follow makes another attempt at the address that this member named, at most one at each address. Its error is
// the error of the last attempt.
func follow(ctx context.Context, opts *DialOptions, try func(context.Context, *attempt) error) error {
	a := &attempt{opts: opts, detectTorchStore: true}
	err := try(ctx, a)
	tried := []string{opts.Addr}
	for range maxHops {
		next := servedAt(err)
		if next == "" || slices.Contains(tried, next) {
			break
		}
		tried = append(tried, next)
		before := a.opts.Addr
		a = &attempt{opts: opts.at(next), instance: a.instance}
		err = try(ctx, a)
		if err != nil && (!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrReplaced)) {
			// The address may be out of date: another attempt may help although this answer is final.
			message := elsewhereRefusal(next).message + ", but: " + err.Error()
			return &DialError{Addr: before, Obstacle: ObstacleElsewhere, Message: message}
		}
	}
	return err
}
