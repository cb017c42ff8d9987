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
)

// Refusal is why a launch would be turned away for good where it meets the others, or nil: a port that a stranger has, or a store that is not for
// this job. It follows the order in which an agent tries. What may pass, such as a host that does not answer yet, is none, nor is somebody at one of
// several candidate ports.
func Refusal(c *config.Config, at []Endpoint) error {
	if c.MaxNodes == 1 || c.Rendezvous.Backend == rdzv.BackendEtcd || len(at) != 1 {
		return nil
	}
	e := at[0]
	may, err := mayHost(c, e)
	if e.Problem != "" || err != nil {
		return nil
	}
	if may && !taken(e) {
		return nil
	}
	name := net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
	for _, a := range e.Addresses {
		switch {
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

// taken tells whether somebody has the port on this machine.
func taken(e Endpoint) bool {
	for _, a := range e.Addresses {
		if a.Local && a.State != StateNobody {
			return true
		}
	}
	return false
}
