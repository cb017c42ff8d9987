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

// Explain turns an error about an address or a port that a store cannot use into a *config.UsageError. It names the
// flag that chose the address or port, and the process that holds the port. Other errors are returned as they are.
func Explain(cfg *config.Config, err error) error {
	if taken, ok := errors.AsType[*elastic.PortsTakenError](err); ok {
		where := settingOr(cfg, "rdzv-endpoint", cfg.Rendezvous.Endpoint)
		return &config.UsageError{Where: where, Problem: describeTaken(taken)}
	}
	if elsewhere, ok := errors.AsType[*elastic.LocalHostError](err); ok {
		return &config.UsageError{Where: settingOr(cfg, "rdzv-endpoint", config.LocalEndpoint), Problem: elsewhere.Error() +
			": give all terminals the same XDG_RUNTIME_DIR and TMPDIR; if that folder was emptied, end the other agent first"}
	}
	if bad, ok := errors.AsType[*elastic.LocalSocketError](err); ok {
		return &config.UsageError{Where: settingOr(cfg, "rdzv-endpoint", config.LocalEndpoint), Problem: bad.Error() +
			": set XDG_RUNTIME_DIR to a folder of your own in all terminals"}
	}
	if silent, ok := errors.AsType[*elastic.PeerUserError](err); ok {
		return &config.UsageError{Where: cfg.Where("store-users"), Problem: silent.Error()}
	}
	if shared, ok := errors.AsType[*elastic.SharedStoreError](err); ok {
		return explainShared(cfg, shared)
	}
	var busy *rdzv.ListenError
	if !errors.As(err, &busy) {
		return err
	}
	port, addr, free := "master-port", "master-addr", ", or leave the flag out to get a free one"
	ports := cfg.Rendezvous.WorkerStorePorts
	switch {
	case cfg.MaxNodes > 1 && slices.Contains(cfg.Rendezvous.Endpoints, config.HostPort{Host: busy.Addr, Port: busy.Port}):
		free = " for all nodes"
		if cfg.Given("rdzv-endpoint") || !cfg.Given("master-port") && !cfg.Given("master-addr") {
			port, addr = "rdzv-endpoint", "rdzv-endpoint"
		}
	case ports != config.PortRange{} && busy.Port == ports.Low:
		port = "worker-store-port"
	}
	if busy.Addr == cfg.Rendezvous.LocalAddr {
		addr = "local-addr"
	}
	port, addr = settingOr(cfg, port, strconv.Itoa(busy.Port)), settingOr(cfg, addr, busy.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &config.UsageError{Where: port, Problem: cannotListen(busy.Addr, busy.Port, busy.Err) + free}
	case errors.Is(err, syscall.EACCES):
		return &config.UsageError{Where: port, Problem: cannotListen(busy.Addr, busy.Port, busy.Err)}
	default:
		return &config.UsageError{Where: addr, Problem: cannotListen(busy.Addr, busy.Port, busy.Err)}
	}
}

// explainShared explains that a job with the static backend has found a store for any job at its endpoint, and how to
// use that store.
func explainShared(cfg *config.Config, shared *elastic.SharedStoreError) error {
	bad := &config.UsageError{Where: cfg.Where("rdzv-backend"), Problem: shared.Error() +
		": leave the static backend out on all nodes to use that store, or name another port"}
	for _, flag := range []string{"node-rank", "master-addr", "master-port"} {
		if !cfg.Given("rdzv-backend") && cfg.Given(flag) {
			bad.Where = cfg.Where(flag)
			bad.Problem = "chooses the static backend, but " + shared.Error() +
				": give --rdzv-backend=c10d on all nodes to use that store, or name another port"
			break
		}
	}
	return bad
}

// settingOr names the setting of a flag as the user wrote it. For a flag that the user did not give, it returns
// --flag=value.
func settingOr(cfg *config.Config, flag, value string) string {
	if cfg.Given(flag) {
		return cfg.Where(flag)
	}
	return "--" + flag + "=" + value
}

// describeTaken names the process that holds each of the candidate ports of the rendezvous.
func describeTaken(taken *elastic.PortsTakenError) string {
	const maxNamed = 4 // ports
	named := taken.Ports[:min(len(taken.Ports), maxNamed)]
	texts := make([]string, len(named))
	for i, t := range named {
		what, _ := obstacle(taken.Host, t.Port, t.Err)
		if number := strconv.Itoa(t.Port); !strings.Contains(what, number) {
			what = number + ": " + what
		}
		var other *coord.RefusedError
		if errors.As(t.Found, &other) && (other.Reason == coord.ReasonRunID || other.Reason == coord.ReasonSecret) {
			what += ", the store of another job"
		}
		texts[i] = what
	}
	if more := len(taken.Ports) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return "no candidate port of the rendezvous is free: " + strings.Join(texts, "; ") +
		"; end one of these programs, or name another port for all nodes"
}

// cannotListen describes why a port of a host cannot be used, and what to do about it.
func cannotListen(host string, port int, err error) string {
	what, advice := obstacle(host, port, err)
	if advice != "" {
		what += "; " + advice
	}
	return what
}

// obstacle describes why a port of a host cannot be used. advice is empty if another port would not help.
func obstacle(host string, port int, err error) (what, advice string) {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		holder := "the port is taken"
		addr, _ := netip.ParseAddr(host) // zero for a host name, which may stand for any address of this machine
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

// On listens at an address. where is the setting that names the address, as the user wrote it. Looking up a host name
// can take long: On returns the cause of ctx when ctx ends. Other errors are *config.UsageError.
func On(ctx context.Context, where string, at config.HostPort) (net.Listener, error) {
	l, err := tcplisten.Listen(ctx, at.Host, at.Port)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		return nil, &config.UsageError{Where: where, Problem: cannotListen(at.Host, at.Port, err)}
	}
}
