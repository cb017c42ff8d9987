package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// Explain puts an address that a store cannot have into terms of the flags, and a port that is taken in terms of
// who has it.
func Explain(cfg *config.Config, err error) error {
	if taken, ok := errors.AsType[*elastic.PortsTakenError](err); ok {
		return &config.UsageError{Where: "--rdzv-endpoint=" + cfg.Rendezvous.Endpoint, Problem: noneFree(taken)}
	}
	var busy *rdzv.ListenError
	if !errors.As(err, &busy) {
		return err
	}
	port, addr, free := fmt.Sprintf("--master-port=%d", busy.Port), "--master-addr="+busy.Addr, ", or leave the flag out to get a free one"
	ports := cfg.Rendezvous.WorkerStorePorts
	switch {
	case cfg.MaxNodes > 1 && slices.Contains(cfg.Rendezvous.Endpoints, config.HostPort{Host: busy.Addr, Port: busy.Port}):
		port, addr, free = "--rdzv-endpoint="+cfg.Rendezvous.Endpoint, "--rdzv-endpoint="+cfg.Rendezvous.Endpoint, " for all nodes"
	case ports != config.PortRange{} && busy.Port == ports.Low:
		port = "--worker-store-port=" + elastic.Ports(ports).String()
	}
	if busy.Addr == cfg.Rendezvous.LocalAddr {
		addr = "--local-addr=" + busy.Addr
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &config.UsageError{Where: port, Problem: cannotListen(busy.Addr, busy.Port, busy.Err) + free}
	case errors.Is(err, syscall.EACCES):
		return &config.UsageError{Where: port, Problem: cannotListen(busy.Addr, busy.Port, busy.Err)}
	default:
		return &config.UsageError{Where: addr, Problem: cannotListen(busy.Addr, busy.Port, busy.Err)}
	}
}

// noneFree says who has each of the ports that the rendezvous could have been at, and what to do.
func noneFree(taken *elastic.PortsTakenError) string {
	const most = 4 // of the ports that are named
	named := taken.Ports[:min(len(taken.Ports), most)]
	texts := make([]string, len(named))
	for i, t := range named {
		what, _ := obstacle(taken.Host, t.Port, t.Err)
		if number := strconv.Itoa(t.Port); !strings.Contains(what, number) {
			what = number + ": " + what
		}
		var other *coord.RefusedError
		if errors.As(t.Found, &other) && other.Reason == coord.ReasonRunID {
			what += ", the store of another job"
		}
		texts[i] = what
	}
	if more := len(taken.Ports) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return "the rendezvous can have none of its ports: " + strings.Join(texts, "; ") + "; end one of them, or name another port for all nodes"
}

// cannotListen says why nothing can listen on a port of a host, and what to do where the port is the cause.
func cannotListen(host string, port int, err error) string {
	what, advice := obstacle(host, port, err)
	if advice != "" {
		what += "; " + advice
	}
	return what
}

// obstacle says why nothing can listen on a port of a host, and what to do; no advice where the port is not the cause.
func obstacle(host string, port int, err error) (what, advice string) {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		holder := "the port is taken"
		addr, _ := netip.ParseAddr(host) // a name may stand for any of this machine's
		if owner, ownerErr := topology.PortOwner(addr, port); ownerErr == nil {
			holder = owner.String()
		}
		return holder, "choose another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "not an address of this machine", ""
	case errors.Is(err, syscall.EACCES):
		return "this user may not listen there", "choose a port above 1023"
	default:
		return err.Error(), ""
	}
}

// On listens where a flag says. A name may take long to look up, so it ends when ctx does, with ctx's cause.
func On(ctx context.Context, flag string, at config.HostPort) (net.Listener, error) {
	l, err := tcplisten.Listen(ctx, at.Host, at.Port)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		return nil, &config.UsageError{Where: flag + "=" + at.String(), Problem: cannotListen(at.Host, at.Port, err)}
	}
}
