package elastic

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/tcplisten"
	"github.com/elasticrun/elasticrun/pkg/coord/group"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
)

// listenMember listens for the store's group, not at the endpoint's port, which another job may want on this machine.
// It tries a range of ports for worker stores from its end, and leaves the first port to the worker store.
func (a *C10d) listenMember(ctx context.Context) (net.Listener, error) {
	var err error
	for port := a.MemberPorts.High; port > a.MemberPorts.Low; port-- {
		var ln net.Listener
		if ln, err = tcplisten.Listen(ctx, a.LocalAddr, port); err == nil {
			return ln, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return tcplisten.Listen(ctx, a.LocalAddr, 0)
}

// takenEndpoint is an endpoint that is this machine, where another agent listened when this one was started.
type takenEndpoint struct {
	index int
	role  machine.HostRole
}

// mayTakeEndpoint reports whether this agent may try again to listen at its endpoint, where another agent listened when
// this one was started. It may until it has learned who keeps the store. If the other agent has gone meanwhile, this
// one finds that out only by listening there, as an agent does that starts now. a.mu is held.
func (a *C10d) mayTakeEndpoint() bool { return a.taken != nil && a.keptTogether() && !a.knowsMembers }

func (a *C10d) setTaken(index int, role machine.HostRole) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = &takenEndpoint{index, role}
}

// How long and how often awaitEndpoint tries.
const (
	awaitEndpointTime  = 10 * time.Second
	awaitEndpointPause = 100 * time.Millisecond
)

// awaitEndpoint calls takeEndpoint until that succeeds, for a while. It returns nil at once if there is nothing to
// take, and when stop is closed.
func (a *C10d) awaitEndpoint(ctx context.Context, stop <-chan struct{}) *storeMember {
	a.mu.Lock()
	at := a.taken
	a.mu.Unlock()
	if at == nil {
		return nil
	}
	for began := time.Now(); ; {
		if m := a.takeEndpoint(ctx, *at); m != nil || time.Since(began) > awaitEndpointTime {
			return m
		}
		select {
		case <-time.After(awaitEndpointPause):
		case <-stop:
			return nil
		}
	}
}

// takeEndpoint makes this process a member of the store's group that listens at this machine's endpoint, if whoever
// listened there has ended meanwhile: for example this node's former agent, which had not yet handed over. Otherwise
// newcomers would not find the store there any more. It returns nil if that is not possible.
func (a *C10d) takeEndpoint(ctx context.Context, at takenEndpoint) *storeMember {
	a.mu.Lock()
	client := a.client
	a.mu.Unlock()
	var run io.Closer
	if at.index > 0 || len(a.Ports) > 1 {
		var err error
		if run, err = machine.ClaimRun(a.RunID, at.index); err != nil {
			return nil
		}
	}
	for _, port := range a.hostOf(at.index).Ports {
		role := at.role
		role.Port = port
		ln, err := machine.ListenHost(ctx, role)
		if err != nil {
			continue
		}
		accept, err := a.Users.Admission(ln, false)
		if err != nil {
			_ = ln.Close()
			continue
		}
		m := a.newEndpointMember(ln, run, accept, at.index) //nolint:contextcheck // the member outlives ctx
		a.setClient(client)                                 // so it refers others to the group
		return m
	}
	if run != nil {
		_ = run.Close()
	}
	return nil
}

// serveMembers hands the connections that accept admits to member: those of clients and of other members of the store's
// group. A nil accept admits all.
func serveMembers(
	ln net.Listener, accept func(net.Conn) error, member *group.Member, log zerolog.Logger,
) *machine.Acceptor {
	return machine.Accept(ln, func(c net.Conn) {
		if accept != nil {
			if err := accept(c); err != nil {
				log.Debug().Err(err).Msg("refused a connection to the job's store")
				_ = c.Close()
				return
			}
		}
		member.ServeConn(c)
	}, func() { member.ShedPending(1) })
}
