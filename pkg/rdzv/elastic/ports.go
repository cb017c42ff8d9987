package elastic

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Candidate ports
//
// The endpoint of a run may have several candidate ports, so that jobs on one machine need not agree which job uses
// which port. The host binds the first free candidate. A client asks at one candidate after the other, and a store
// accepts only agents of its own run. So agents of different jobs never meet, and agents of one run meet if the run has
// exactly one store. The machine of the endpoint hosts the store. Three rules make sure that only one of its agents
// does:
//
//  1. An agent that binds a candidate holds the claim of the run from before it binds until the port is free again.
//     Only one process of a machine can hold the claim, so no two agents ever host. That is true whatever they find at
//     the candidates: one agent may skip a port that another job is about to leave, while its neighbor finds that port
//     free. The kernel releases the claim and the port when their holder dies.
//  2. An agent that does not get the claim is a client. It may find no store yet, because its neighbor is about to
//     bind. Then it waits and tries again, also for the claim, which the neighbor releases if it gets no port.
//  3. An agent that has the claim asks at each taken candidate before it binds the next one. The store of the run may
//     be there without a claim: in a separate process (elasticrun store), or in an agent that was given only that
//     port. Then this agent is a client.
//
// The claim is visible where the port is: in one network namespace. On other machines nobody binds a candidate, because
// only agents of the endpoint's host do.
//
// A store that serves every run (elasticrun store) must have the only port of its endpoint. Among several candidates,
// the first agent to find it would mistake it for the run's own store.

// candidates returns the ports at which the store may be. Once a client has found the store, that is its port alone.
func (a *C10d) candidates() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.storePort != 0 {
		return []int{a.storePort}
	}
	return a.Ports
}

// hostFirstFree hosts the store at the first free candidate. It connects instead if the store is at an earlier
// candidate, or if another agent of this machine hosts the run.
func (a *C10d) hostFirstFree(ctx context.Context, e Endpoint, choice HostRole, ports []int) (coord.Store, error) {
	run, err := claimRun(a.RunID)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		store, err := a.join(ctx, e, ports)
		if err != nil {
			err = fmt.Errorf("%w (another agent on this machine hosts run %q, or is about to)", err, a.RunID)
		}
		return store, err
	case err != nil:
		return nil, fmt.Errorf("claim to host run %q: %w", a.RunID, err)
	}
	release := func() { _ = run.Close() }
	taken := &PortsTakenError{Host: a.Host}
	for _, port := range ports {
		choice.Port, e.Port = port, port
		ln, err := listenHost(ctx, choice)
		if err == nil {
			a.logTakenPorts(taken, port)
			return a.serve(ctx, a.newHost(ln, run))
		}
		client, found, _ := a.dial(ctx, e)
		if client != nil {
			release()
			return a.connected(client, port), nil
		}
		taken.Ports = append(taken.Ports, TakenPort{Port: port, Err: err, Found: errors.Join(found...)})
	}
	release()
	return nil, taken
}

// logTakenPorts logs why the host does not use its first choice.
func (a *C10d) logTakenPorts(taken *PortsTakenError, port int) {
	for _, t := range taken.Ports {
		a.Logger.Info().Int("port", t.Port).Err(t.Err).AnErr("found", t.Found).Msg("this port of the endpoint is taken")
	}
	if len(taken.Ports) > 0 {
		a.Logger.Info().Int("port", port).Msg("using another port of the endpoint")
	}
}

// hostOnlyPort hosts the store at the endpoint's only port, or connects to the store that has the port.
func (a *C10d) hostOnlyPort(ctx context.Context, e Endpoint, choice HostRole) (coord.Store, error) {
	ln, taken := listenHost(ctx, choice)
	if taken == nil {
		return a.serve(ctx, a.newHost(ln, nil))
	}
	if !errors.Is(taken, syscall.EADDRINUSE) && a.IsHost != nil {
		return nil, &rdzv.ListenError{Addr: a.Host, Port: e.Port, Err: taken}
	}
	store, err := a.join(ctx, e, []int{e.Port})
	if err != nil && !errors.Is(err, coord.ErrUnavailable) && !errors.As(err, new(*coord.RefusedError)) {
		err = fmt.Errorf("%w; and %w", syscall.EADDRINUSE, err)
		return nil, &rdzv.ListenError{Addr: a.Host, Port: e.Port, Err: err}
	}
	return store, err
}

// join connects to the store, which is at one of the ports. The error says what happened at each port. It is permanent
// (no coord.ErrUnavailable) if somebody else has every port.
func (a *C10d) join(ctx context.Context, e Endpoint, ports []int) (coord.Store, error) {
	var tried []error
	for _, port := range ports {
		e.Port = port
		client, errs, refused := a.dial(ctx, e)
		switch {
		case client != nil:
			if err := a.refuseShared(ctx, e, client); err != nil {
				return nil, err
			}
			return a.connected(client, port), nil
		case refused && len(ports) == 1:
			return nil, fmt.Errorf("rendezvous endpoint %s: %w", e, errs[0])
		}
		tried = append(tried, errs...)
	}
	return nil, &unreachableError{endpoint: e, ports: ports, tried: tried}
}

// connected records where the store is. From now on the agent looks for it only there.
func (a *C10d) connected(client *coord.Client, port int) coord.Store {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil && port != a.Ports[0] {
		a.Logger.Info().Int("port", port).Msg("the rendezvous is not at the first port of the endpoint")
	}
	a.client, a.storePort = client, port
	return client
}

// dial tries each of the endpoint's addresses at its port. Without a client it returns the error of each address. If
// one address refuses this agent for good, it returns that error alone.
func (a *C10d) dial(ctx context.Context, e Endpoint) (client *coord.Client, tried []error, refused bool) {
	for _, addr := range e.Addrs {
		to := a.dialerTo(e, addr)
		opts := coord.DialOptions{
			Addr: to.addr.String(), Version: a.Version, RunID: a.RunID, Secret: a.Secret, TTL: a.TTL, Conn: to.dial,
		}
		client, err := coord.Dial(ctx, opts)
		switch {
		case err == nil:
			return client, nil, false
		case !errors.Is(err, coord.ErrUnavailable):
			return nil, []error{err}, true
		}
		tried = append(tried, err)
	}
	return nil, tried, false
}

// unreachableError says what happened at each address and port of an endpoint.
type unreachableError struct {
	endpoint Endpoint
	ports    []int
	tried    []error
}

func (u *unreachableError) Error() string {
	attempts := make([]attemptError, len(u.tried))
	for i, err := range u.tried {
		attempts[i] = newAttempt(err)
	}
	at := u.endpoint.String()
	if len(u.ports) > 1 {
		at = fmt.Sprintf("%s, ports %s,", u.endpoint.Host, joinPorts(u.ports))
	}
	return fmt.Sprintf("rendezvous endpoint %s cannot be reached: %s", at, summarizeAttempts(attempts))
}

// Unwrap returns the errors that are temporary: the store may still start there, even if others have the other ports.
// It returns all errors if none is temporary.
func (u *unreachableError) Unwrap() []error {
	var temporary []error
	for _, err := range u.tried {
		if errors.Is(err, coord.ErrUnavailable) {
			temporary = append(temporary, err)
		}
	}
	if len(temporary) == 0 {
		return u.tried
	}
	return temporary
}

// PortsTakenError says that the host of the store can use none of the endpoint's ports, and that the run's store is at
// none of them.
type PortsTakenError struct {
	// Host is the endpoint's host, as it was given.
	Host string
	// Ports are all candidates, in order.
	Ports []TakenPort
}

// TakenPort is a port that somebody else has.
type TakenPort struct {
	Port int
	// Err is why this agent cannot listen there, such as syscall.EADDRINUSE, EADDRNOTAVAIL or EACCES.
	Err error
	// Found is the error of the attempt to connect there.
	Found error
}

func (e *PortsTakenError) Error() string {
	attempts := make([]attemptError, len(e.Ports))
	for i, t := range e.Ports {
		why := systemError(t.Err)
		attempts[i] = attemptError{text: fmt.Sprintf("%d: %v, and %v", t.Port, why, t.Found), kind: fmt.Sprint(why)}
		if t.Found != nil {
			attempts[i].kind += kindOf(t.Found)
		}
	}
	return fmt.Sprintf("no port of rendezvous endpoint %s can be used: %s", e.Host, summarizeAttempts(attempts))
}

// Unwrap makes the error an [rdzv.ErrConnection].
func (e *PortsTakenError) Unwrap() error { return rdzv.ErrConnection }
