package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Several endpoints
//
// A job whose agents keep the store together may have several endpoints, so that newcomers find the store while one of
// them leads to a member of its group. The agent on the machine of an endpoint listens there. The first endpoint's
// agent founds the group. The next one does if nobody answers at those before it for a while: see findGroup.

// StoreHost is a further endpoint of a store that agents keep together.
type StoreHost struct {
	Host  string
	Ports []int // as C10d.Ports
	// IsHost says whether this agent listens there. Nil derives it from Host.
	IsHost *bool
}

// hostOf returns the host and the ports of an endpoint, by its index.
func (a *C10d) hostOf(index int) StoreHost {
	if index == 0 {
		return StoreHost{Host: a.Host, Ports: a.candidates(), IsHost: a.IsHost}
	}
	return a.More[index-1]
}

// addrs returns the addresses at which the store may be at an endpoint.
func (h StoreHost) addrs() []string {
	addrs := make([]string, len(h.Ports))
	for i, port := range h.Ports {
		addrs[i] = net.JoinHostPort(h.Host, strconv.Itoa(port))
	}
	return addrs
}

// endpoints returns the addresses of all endpoints, except that of an index; -1 excepts none.
func (a *C10d) endpoints(except int) []string {
	var addrs []string
	for i := range 1 + len(a.More) {
		if i != except {
			addrs = append(addrs, a.hostOf(i).addrs()...)
		}
	}
	return addrs
}

// hostFurther listens at a further endpoint if that is this machine, and opens a session. It returns nothing if this
// machine has no such endpoint, or another process has its port.
func (a *C10d) hostFurther(ctx context.Context, first bool) (coord.Store, error) {
	if !first || len(a.More) == 0 || !a.keptTogether() {
		return nil, nil
	}
	ifaces, err := machine.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := 1; i <= len(a.More); i++ {
		choice, ok := a.ownEndpoint(ctx, ifaces, i)
		if !ok {
			continue
		}
		if _, ok := a.ownEndpoint(ctx, ifaces, 0); ok {
			a.warnOfOneMachine(0, i)
			return nil, nil
		}
		for other := i + 1; other <= len(a.More); other++ {
			if _, ok := a.ownEndpoint(ctx, ifaces, other); ok {
				a.warnOfOneMachine(i, other)
			}
		}
		return a.listenFurther(ctx, i, choice, a.hostOf(i).Ports)
	}
	return nil, nil
}

// ownEndpoint reports whether an endpoint, by its index, is this machine, and how this agent listens there. An endpoint
// that cannot be resolved is not: this agent can go on with the others.
func (a *C10d) ownEndpoint(
	ctx context.Context, ifaces []machine.Interface, index int,
) (choice machine.HostRole, own bool) {
	h := a.hostOf(index)
	if h.IsHost != nil && !*h.IsHost {
		return machine.HostRole{}, false
	}
	endpoint, err := machine.Resolve(ctx, h.Host, h.Ports[0])
	if err != nil {
		return machine.HostRole{}, false
	}
	choice, err = machine.HostChoice(endpoint, ifaces, h.IsHost, a.Hint-index)
	return choice, err == nil && choice.Candidate
}

// adviseEndpoints says what further endpoints add to the only one, which this node is.
func (a *C10d) adviseEndpoints() {
	if a.AdviseEndpoints && a.MaxNodes >= rounds.MinVoters && len(a.More) == 0 {
		a.Logger.Info().Msgf("nodes that come later find the job only at %s; a second and a third node in --rdzv-endpoint "+
			"let them find it without this one", a.hostOf(0).addrs()[0])
	}
}

// warnOfOneMachine warns once that two endpoints, by their indexes, are this machine.
func (a *C10d) warnOfOneMachine(one, other int) {
	a.mu.Lock()
	warned := a.warnedOfOneMachine
	a.warnedOfOneMachine = true
	a.mu.Unlock()
	if warned {
		return
	}
	a.Logger.Warn().Msgf("the endpoints %s and %s are one machine: a further one helps only on another machine",
		a.hostOf(one).addrs()[0], a.hostOf(other).addrs()[0])
}

// listenFurther listens at the first free port of a further endpoint.
func (a *C10d) listenFurther(
	ctx context.Context, index int, choice machine.HostRole, ports []int,
) (coord.Store, error) {
	run, err := machine.ClaimRun(a.RunID, index)
	switch {
	case errors.Is(err, syscall.EADDRINUSE): // another agent of this machine listens there
		a.setTaken(index, choice)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("claim to host run %q: %w", a.RunID, err)
	}
	for _, port := range ports {
		choice.Port = port
		if ln, err := machine.ListenHost(ctx, choice); err == nil {
			return a.hostOn(ctx, ln, run, index)
		}
	}
	a.setTaken(index, choice)
	a.Logger.Warn().Str("endpoint", a.hostOf(index).Host).Msg("no port of this node's endpoint is free: other nodes do " +
		"not find the job's store here")
	return nil, run.Close()
}

// joinFurther opens a session at whichever endpoint the store is found first. problem is why the first endpoint was not
// tried, or nil.
func (a *C10d) joinFurther(ctx context.Context, problem error) (coord.Store, error) {
	if len(a.More) == 0 {
		return nil, problem
	}
	except := -1
	if problem != nil {
		except = 0
	}
	client, errs := a.firstSession(ctx, a.endpoints(except), 0)
	if client != nil {
		a.setClient(client)
		return client, nil
	}
	return nil, &endpointsError{append(slices.DeleteFunc([]error{problem}, func(err error) bool { return err == nil }),
		errs...)}
}

// firstSession opens a session at whichever address answers first. Without a session it returns the error of each. A
// timeout of 0 is the client's default.
func (a *C10d) firstSession(ctx context.Context, addrs []string, timeout time.Duration) (*coord.Client, []error) {
	return firstOf(ctx, len(addrs), func(ctx context.Context, i int) (*coord.Client, error) {
		opts := a.clientOptions(addrs[i], a.Host)
		opts.Timeout = timeout
		return coord.Dial(ctx, opts)
	})
}

// firstOf makes n attempts at once to open a session. The first success cancels the other attempts; firstOf returns one
// session and closes any others. Without a session it returns the error of each attempt.
func firstOf[S coord.Store](
	ctx context.Context, n int, open func(ctx context.Context, i int) (S, error),
) (first S, errs []error) {
	sessions, errs := make([]S, n), make([]error, n)
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			if sessions[i], errs[i] = open(asking, i); errs[i] == nil {
				cancel() // one is enough
			}
		})
	}
	running.Wait()
	found := false
	for i, session := range sessions {
		switch {
		case errs[i] != nil:
		case !found:
			first, found = session, true
		default:
			_ = session.Close(context.WithoutCancel(ctx)) // else the session expires
		}
	}
	return first, errs
}

// endpointsError says why the store was not found at any of several endpoints.
type endpointsError struct{ tried []error }

func (e *endpointsError) Error() string {
	if err := notOurs(e.tried); err != nil {
		return err.Error()
	}
	attempts := make([]attemptError, len(e.tried))
	for i, err := range e.tried {
		attempts[i] = newAttempt(err)
	}
	var text strings.Builder
	text.WriteString("the job's store was not reached at any endpoint: ")
	text.WriteString(summarizeAttempts(attempts))
	return text.String()
}

// notOurs returns the first refusal for another reason than the run id, or nil. The store there may be the job's, but
// it is of another elasticrun or has another secret.
func notOurs(errs []error) error {
	for _, err := range errs {
		if refused, ok := errors.AsType[*coord.RefusedError](err); ok && refused.Reason != coord.ReasonRunID {
			return refused
		}
	}
	return nil
}

// anotherJobs returns the refusal of another job's store if that is all that listens at the endpoints, or nil. This
// node most likely has a wrong run id or a wrong endpoint.
func anotherJobs(errs []error) (refusal error) {
	for _, err := range errs {
		if refused, ok := errors.AsType[*coord.RefusedError](err); ok && refused.Reason == coord.ReasonRunID {
			refusal = err
			continue
		}
		if failed, ok := errors.AsType[*coord.DialError](err); !ok || failed.Obstacle != coord.ObstacleRefused {
			return nil
		}
	}
	return refusal
}

// Unwrap returns the errors that are temporary, or all if none is, or one that no other attempt can overcome.
func (e *endpointsError) Unwrap() []error {
	if err := notOurs(e.tried); err != nil {
		return []error{err}
	}
	if err := anotherJobs(e.tried); err != nil {
		return []error{err}
	}
	var temporary []error
	for _, err := range e.tried {
		if errors.Is(err, coord.ErrUnavailable) || errors.Is(err, rdzv.ErrConnection) {
			temporary = append(temporary, err)
		}
	}
	if len(temporary) == 0 {
		return e.tried
	}
	return temporary
}
