package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
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
func (a *C10d) hostFirstFree(
	ctx context.Context, e machine.Endpoint, choice machine.HostRole, ports []int,
) (coord.Store, error) {
	run, err := machine.ClaimRun(a.RunID, 0)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		a.setTaken(0, choice)
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
		ln, err := machine.ListenHost(ctx, choice)
		if err == nil {
			a.logTakenPorts(taken, port)
			return a.hostOn(ctx, ln, run, 0)
		}
		client, found, _ := a.dial(ctx, e)
		if client != nil {
			release()
			a.setTaken(0, choice)
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
func (a *C10d) hostOnlyPort(ctx context.Context, e machine.Endpoint, choice machine.HostRole) (coord.Store, error) {
	ln, taken := machine.ListenHost(ctx, choice)
	if taken == nil {
		return a.hostOn(ctx, ln, nil, 0)
	}
	if !errors.Is(taken, syscall.EADDRINUSE) && a.IsHost != nil {
		return nil, &rdzv.ListenError{Addr: a.Host, Port: e.Port, Err: taken}
	}
	a.setTaken(0, choice)
	store, err := a.join(ctx, e, []int{e.Port})
	if err != nil && !errors.Is(err, coord.ErrUnavailable) && !errors.As(err, new(*coord.RefusedError)) {
		err = fmt.Errorf("%w; and %w", syscall.EADDRINUSE, err)
		return nil, &rdzv.ListenError{Addr: a.Host, Port: e.Port, Err: err}
	}
	return store, err
}

// join connects to the store, which is at one of the ports. The error says what happened at each port. It is permanent
// (no coord.ErrUnavailable) if somebody else has every port.
func (a *C10d) join(ctx context.Context, e machine.Endpoint, ports []int) (coord.Store, error) {
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

// dialOptions returns how to connect to the store at an address of host, which is as the user gave it.
func (a *C10d) dialOptions(addr, host string) coord.DialOptions {
	return coord.DialOptions{
		Addr: addr, Version: a.Version, RunID: a.RunID, Secret: a.Secret, Certificates: a.Certificates,
		ServerNames: a.serverNames(host),
	}
}

// serverNames returns the names of which a store at an endpoint must have one in its certificate.
func (a *C10d) serverNames(host string) []string {
	if len(a.ServerNames) > 0 {
		return a.ServerNames
	}
	return []string{cmp.Or(host, "localhost")}
}

// isEndpoint reports whether addr is an endpoint as the user gave it.
func (a *C10d) isEndpoint(addr string) bool {
	return a.Host != "" && slices.Contains(a.endpoints(-1), addr)
}

// dial tries each of the endpoint's addresses at its port. Without a client it returns the error of each address. If
// one address refuses this agent for good, it returns that error alone.
func (a *C10d) dial(ctx context.Context, e machine.Endpoint) (client *coord.Client, tried []error, refused bool) {
	for _, addr := range e.Addrs {
		to := a.dialerTo(e, addr)
		verify, err := a.verification(addr)
		if err != nil {
			return nil, []error{err}, true
		}
		opts := a.dialOptions(to.addr.String(), e.Host)
		opts.Role, opts.TTL, opts.Conn, opts.Verify = a.role, a.TTL, to.dial, verify
		opts.Adapt = a.adapt
		client, err := a.dialCandidate(ctx, opts, len(e.Addrs) == 1 && len(a.candidates()) == 1)
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

// A server that has not proved to be the run's store can make an agent wait, as a busy store does during the handshakes
// of many others. If there are other candidates, an agent waits for one at most firstMaxWait. If no candidate is the
// run's store, the next attempt waits twice as long at each, up to lastMaxWait: one of them may be.
const (
	firstMaxWait = 20 * time.Second
	lastMaxWait  = 10 * time.Minute
)

// dialCandidate connects to the store at one candidate. only says that there is no other, so coord's own limit holds.
func (a *C10d) dialCandidate(ctx context.Context, opts coord.DialOptions, only bool) (*coord.Client, error) {
	if only {
		return coord.Dial(ctx, opts)
	}
	a.mu.Lock()
	opts.MaxWait = a.maxWait
	a.mu.Unlock()
	began := time.Now()
	client, err := coord.Dial(ctx, opts)
	if err != nil && time.Since(began) >= opts.MaxWait {
		a.mu.Lock()
		a.waited = true
		a.mu.Unlock()
	}
	return client, err
}

// verification returns [coord.DialOptions.Verify] for a store at addr. With a secret it verifies nothing: the handshake
// proves the secret, which proves more than a user does.
func (a *C10d) verification(addr netip.Addr) (func(net.Conn) error, error) {
	if len(a.Secret) > 0 || a.Connect != nil {
		return nil, nil
	}
	return a.Users.verification(addr)
}

// unreachableError says what happened at each address and port of an endpoint.
type unreachableError struct {
	endpoint machine.Endpoint
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
		at = fmt.Sprintf("%s, ports %s", u.endpoint.Host, joinPorts(u.ports))
	}
	return fmt.Sprintf("the job's store was not reached at rendezvous endpoint %s: %s", at, summarizeAttempts(attempts))
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

// TakenPort is a port that this agent cannot use.
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
		why := machine.SystemError(t.Err)
		attempts[i] = attemptError{text: fmt.Sprintf("%d: %v, and %v", t.Port, why, t.Found), kind: fmt.Sprint(why)}
		if t.Found != nil {
			attempts[i].kind += kindOf(t.Found)
		}
	}
	return fmt.Sprintf("no port of rendezvous endpoint %s can be used: %s", e.Host, summarizeAttempts(attempts))
}

// Unwrap makes the error an [rdzv.ErrConnection].
func (e *PortsTakenError) Unwrap() error { return rdzv.ErrConnection }
