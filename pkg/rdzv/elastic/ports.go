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
// The endpoint of a run may have several ports at which its store may be, so that jobs which share a machine need not agree on who has which. The
// host takes the first that it can bind; a client asks at one after the other, and a store lets in only agents of its own run. So jobs never meet, and
// agents of one run do if there is one store of theirs, no more. It is the machine of the endpoint that hosts; among its agents these rules see to it:
//
//  1. Who binds a candidate holds the claim of the run, which one process of the machine can have, from before it binds until its port is free again. So
//     no two agents ever host, whatever they found at the candidates, and in whichever order: an agent that would pass over a port because the store of
//     another job is about to go from it, while its neighbour finds the port free, has no claim or has the only one. The kernel gives the claim back
//     when its holder dies, and the port with it.
//  2. Who does not get the claim is a client. It may find nothing yet, as its neighbour may be about to bind; then it waits and tries again, also
//     for the claim, which its neighbour gives back if it can have no port.
//  3. Who has the claim asks at each candidate that is taken before it binds the next: the store of the run may be there without a claim,
//     in a process of its own (elasticrun store) or of an agent that was given that one port. Then this agent is a client.
//
// The claim is seen where the port is: within one network namespace. On other machines nobody binds, because only agents of the endpoint's host do.
//
// A store that serves any run (elasticrun store) is to have the only port of its endpoint: as one of several it would be taken for the run's own by
// whoever finds it first.

// candidates are the ports at which the store may be: only the one where it was found, once it was.
func (a *C10d) candidates() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.storePort != 0 {
		return []int{a.storePort}
	}
	return a.Ports
}

// hostOne hosts the store at the first candidate that is free, unless it is at one before or another agent of this machine hosts it.
func (a *C10d) hostFirstFree(ctx context.Context, e Endpoint, choice Choice, ports []int) (coord.Store, error) {
	run, err := claimRun(a.RunID)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		store, err := a.join(ctx, e, ports)
		if err != nil {
			err = fmt.Errorf("%w (another agent of this machine hosts run %q, or is about to)", err, a.RunID)
		}
		return store, err
	case err != nil:
		return nil, fmt.Errorf("claim to be the host of run %q: %w", a.RunID, err)
	}
	release := func() { _ = run.Close() }
	taken := &PortsTakenError{Host: a.Host}
	for _, port := range ports {
		choice.Port, e.Port = port, port
		ln, err := Bind(ctx, choice)
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

// passedOver says that the host has not got its first choice.
func (a *C10d) logTakenPorts(taken *PortsTakenError, port int) {
	for _, t := range taken.Ports {
		a.Logger.Info().Int("port", t.Port).Err(t.Err).AnErr("found", t.Found).Msg("somebody else has this port of the endpoint")
	}
	if len(taken.Ports) > 0 {
		a.Logger.Info().Int("port", port).Msg("taking another one")
	}
}

// hostOnly hosts the store at the endpoint's only port, or connects to whoever has it.
func (a *C10d) hostOnlyPort(ctx context.Context, e Endpoint, choice Choice) (coord.Store, error) {
	ln, taken := Bind(ctx, choice)
	if taken == nil {
		return a.serve(ctx, a.newHost(ln, nil))
	}
	if !errors.Is(taken, syscall.EADDRINUSE) && a.IsHost != nil {
		return nil, &rdzv.ListenError{Addr: a.Host, Port: e.Port, Err: taken}
	}
	store, err := a.join(ctx, e, []int{e.Port})
	if err != nil && !errors.Is(err, coord.ErrUnavailable) && !errors.As(err, new(*coord.RefusedError)) {
		return nil, &rdzv.ListenError{Addr: a.Host, Port: e.Port, Err: fmt.Errorf("%w; and %w", syscall.EADDRINUSE, err)}
	}
	return store, err
}

// join connects to the store, which is at one of the ports. Its error says what happened at each; it is final (no coord.ErrUnavailable) where
// somebody else is at each of them.
func (a *C10d) join(ctx context.Context, e Endpoint, ports []int) (coord.Store, error) {
	var tried []error
	for _, port := range ports {
		e.Port = port
		client, errs, refused := a.dial(ctx, e)
		switch {
		case client != nil:
			return a.connected(client, port), nil
		case refused && len(ports) == 1:
			return nil, fmt.Errorf("rendezvous endpoint %s: %w", e, errs[0])
		}
		tried = append(tried, errs...)
	}
	return nil, &unreachableError{endpoint: e, ports: ports, tried: tried}
}

// settle notes where the store is: from now on it is nowhere else.
func (a *C10d) connected(client *coord.Client, port int) coord.Store {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil && port != a.Ports[0] {
		a.Logger.Info().Int("port", port).Msg("the rendezvous is at another port than the first")
	}
	a.client, a.storePort = client, port
	return client
}

// dial tries each of the endpoint's addresses at its port. Without a client it returns what happened at each, or, as soon as one of them has refused this
// agent for good, that alone.
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

// unreachable says what happened at each address and port of an endpoint.
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

// Unwrap returns what may pass: the store may still come there, whoever is at the other ports. It returns all where nothing may.
func (u *unreachableError) Unwrap() []error {
	var may []error
	for _, err := range u.tried {
		if errors.Is(err, coord.ErrUnavailable) {
			may = append(may, err)
		}
	}
	if len(may) == 0 {
		return u.tried
	}
	return may
}

// PortsTakenError says that the host of the store can have none of the endpoint's ports, and that the run's store is at none of them.
type PortsTakenError struct {
	// Host is the endpoint's, as it was given.
	Host string
	// Ports are all candidates, in their order.
	Ports []TakenPort
}

// TakenPort is a port that somebody else has.
type TakenPort struct {
	Port int
	// Err is why nothing can listen there: errors.Is tells syscall.EADDRINUSE, EADDRNOTAVAIL, EACCES.
	Err error
	// Found is what came of the attempt to connect to whoever is there.
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
	return fmt.Sprintf("no port of rendezvous endpoint %s can be had: %s", e.Host, summarizeAttempts(attempts))
}

// Unwrap makes it an [rdzv.ErrConnection].
func (e *PortsTakenError) Unwrap() error { return rdzv.ErrConnection }
