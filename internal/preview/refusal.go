package preview

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// Refusal returns the error with which a launch would be refused for good at its endpoint, or nil: another program
// holds the port, or the store belongs to another job. It tries the addresses in an agent's order. An obstacle that may
// pass, such as a host that does not reply yet, is no refusal. Neither is a program at one of several candidate ports.
func Refusal(c *config.Config, endpoints []Endpoint) error {
	if c.MaxNodes == 1 || c.Rendezvous.Backend == rdzv.BackendEtcd || len(endpoints) != 1 {
		return nil
	}
	e := endpoints[0]
	if e.Socket != "" {
		return refusedAtSocket(c, e)
	}
	may, err := mayHost(c, e)
	if e.Problem != "" || err != nil {
		return nil
	}
	if may && !portTaken(e) {
		return nil
	}
	name := net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	for _, a := range e.Addresses {
		switch {
		case a.State == StateAnyRun && c.Rendezvous.Backend == rdzv.BackendStatic:
			return &elastic.SharedStoreError{Endpoint: name}
		case a.Err == nil:
			return nil
		case errors.Is(a.Err, coord.ErrUnavailable):
			continue
		}
		err := fmt.Errorf("rendezvous endpoint %s: %w", name, a.Err)
		if may && !errors.As(err, new(*coord.RefusedError)) {
			return &rdzv.ListenError{Addr: e.Host, Port: e.Port, Err: fmt.Errorf("%w; and %w", syscall.EADDRINUSE, err)}
		}
		return fmt.Errorf("join rendezvous %q: %w: %w", c.RunID, rdzv.ErrConnection, err)
	}
	return nil
}

// refusedAtSocket returns the error of a store at a Unix socket that does not admit this agent, or nil.
func refusedAtSocket(c *config.Config, e Endpoint) error {
	for _, a := range e.Addresses {
		if errors.As(a.Err, new(*coord.RefusedError)) {
			return fmt.Errorf("join rendezvous %q: %w: %w", c.RunID, rdzv.ErrConnection, a.Err)
		}
	}
	return nil
}

// portTaken reports whether a program on this machine holds the port.
func portTaken(e Endpoint) bool {
	for _, a := range e.Addresses {
		if a.Local && a.State != StateNobody {
			return true
		}
	}
	return false
}
