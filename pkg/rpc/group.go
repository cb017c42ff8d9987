package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// Group is this worker's place among those that call each other. [Init] makes it; whoever did ends it, with Shutdown or Close. It is
// safe for concurrent use.
type Group struct {
	agent        Agent
	timeout      time.Duration // of calls whose context has no deadline; none if not positive
	closeAgent   func() error  // ends the agent, not shutdownAgent
	releaseStore func() error  // gives back what Init has met the others by

	mu             sync.Mutex
	calls          sync.WaitGroup          // the goroutines of futures; nothing is added once closed is set
	roots          int                     // futures that no function has begun
	rootsDone      chan struct{}           // closed when there are none of these, and ending is set
	closed         bool                    // no future begins any more
	ending         bool                    // Shutdown or Close was called
	cancelShutdown context.CancelCauseFunc // ends the graceful shutdown; nil if there is none
	ended          chan struct{}           // closed when the group has ended, with the errors below

	shutdownErr error // why a shutdown was not graceful
	closeErr    error
}

// newGroup takes a context for its values.
func newGroup(ctx context.Context, agent Agent, timeout time.Duration, releaseStore func() error) *Group {
	closeAgent := func() error { return agent.Shutdown(context.WithoutCancel(ctx), false) }
	return &Group{agent: agent, timeout: timeout, closeAgent: closeAgent, releaseStore: releaseStore, ended: make(chan struct{}), rootsDone: make(chan struct{})}
}

// Self is this worker.
func (g *Group) Self() WorkerInfo { return g.agent.Self() }

// View is who is in the group now. In a dynamic group its Changed tells of the next view.
func (g *Group) View() View { return g.agent.View() }

// Worker finds a member by its name.
func (g *Group) Worker(name string) (WorkerInfo, bool) {
	workers := g.agent.View().Workers
	if i := slices.IndexFunc(workers, func(w WorkerInfo) bool { return w.Name == name }); i >= 0 {
		return workers[i], true
	}
	return WorkerInfo{}, false
}

// Devices are those that this worker has declared or, if it has declared none, those that its own map and the others' name.
func (g *Group) Devices() []device.Device {
	own, _, _ := g.agent.Devices()
	return slices.Clone(own)
}

// DeviceMap is this worker's map for calls to another; nil if it has none.
func (g *Group) DeviceMap(to string) device.Map {
	_, forward, _ := g.agent.Devices()
	return maps.Clone(forward[to])
}

// ReverseDeviceMap is the reverse of the map that another worker has for this one; nil if it has none.
func (g *Group) ReverseDeviceMap(from string) device.Map {
	_, _, reverse := g.agent.Devices()
	return maps.Clone(reverse[from])
}

// Done is closed when this worker is in the group no more: after Shutdown or Close, and when the others have taken it for
// dead, after which only Close is left to do.
func (g *Group) Done() <-chan struct{} { return g.agent.Done() }

// Shutdown ends the group shutdownAgent. In a static one all members call it; it waits until none of them has a call under way
// or can beginEnd one, so that a worker goes on serving the others meanwhile. A dynamic group is left: it waits for
// this worker's own calls, and for the functions that run here.
//
// If ctx ends before that, which without a deadline it does after [ShutdownTimeout], or anything else fails, the group ends as by Close, and
// the error says what was shutdownErr. So in every case nothing is left of the group when Shutdown returns. All but the first call wait for
// the first. A function that is being called is refused, since it would wait for itself.
func (g *Group) Shutdown(ctx context.Context) error {
	if call, ok := Incoming(ctx); ok && call.Group == g {
		return errors.New("shut down the group: a function of it cannot, since that waits until the function has ended; use Close, or let who has joined do it")
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, ShutdownTimeout,
			fmt.Errorf("not all have come to an end within %v; a context with a deadline of its own may wait longer", ShutdownTimeout))
		defer cancel()
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if g.beginEnd(cancel) {
		if err := g.shutdownAgent(run); err != nil {
			g.shutdownErr = fmt.Errorf("shut down the group shutdownAgent: %w", err)
			g.closeErr = g.closeAgent()
		}
		g.finish()
	}
	select {
	case <-g.ended:
		return errors.Join(g.shutdownErr, g.closeErr)
	case <-ctx.Done():
	}
	select {
	case <-g.ended: // both, and then the group's end counts
		return errors.Join(g.shutdownErr, g.closeErr)
	default:
		return fmt.Errorf("shut down the group: %w", kvstore.ContextError(ctx))
	}
}

// Close ends the group at once, as it is: calls under way fail with [ErrShutdown], and the others learn of it as of a death.
// A Shutdown that is under way ends too. It waits for the group's goroutines, and after Shutdown it does nothing.
func (g *Group) Close() error {
	if g.beginEnd(nil) {
		g.closeErr = g.closeAgent()
		g.finish()
	}
	<-g.ended
	return g.closeErr
}

// shutdownAgent ends the agent once the futures are done that were begun before: their calls may not have reached it yet.
func (g *Group) shutdownAgent(ctx context.Context) error {
	select {
	case <-g.rootsDone:
	case <-ctx.Done():
		return fmt.Errorf("calls of this worker are still under way: %w", kvstore.ContextError(ctx))
	}
	return g.agent.Shutdown(ctx, true)
}

// beginEnd tells whether the caller is the first to end the group, and so the one who has to. cancelShutdown is what ends the caller's shutdown;
// who has none, because it closes the group, ends that of the first.
func (g *Group) beginEnd(cancelShutdown context.CancelCauseFunc) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.ending
	switch {
	case first:
		g.ending, g.cancelShutdown = true, cancelShutdown
		if g.roots == 0 {
			close(g.rootsDone)
		}
	case cancelShutdown == nil && g.cancelShutdown != nil:
		g.cancelShutdown(fmt.Errorf("%w: Close was called", ErrShutdown))
	}
	return first
}

// finish ends what is left when the agent has ended: the goroutines that wait for calls, and what the members have met by.
func (g *Group) finish() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.calls.Wait()
	if g.releaseStore != nil {
		g.closeErr = errors.Join(g.closeErr, g.releaseStore())
	}
	close(g.ended)
}

// start runs do in a goroutine of the group, unless the group has ended; or is about to, where ctx is not that of a function.
func (g *Group) start(ctx context.Context, do func()) bool {
	_, nested := Incoming(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.ending && !nested {
		return false
	}
	if nested {
		g.calls.Go(do)
		return true
	}
	g.roots++
	g.calls.Go(func() {
		defer g.rootDone()
		do()
	})
	return true
}

func (g *Group) rootDone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roots--; g.roots == 0 && g.ending {
		close(g.rootsDone)
	}
}

// call sends one payload and returns the answer's. Its error is a *RemoteError or a *CallError.
func (g *Group) call(ctx context.Context, to, function string, payload []byte) ([]byte, error) {
	begun := time.Now()
	_, limited := ctx.Deadline()
	if !limited && g.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.timeout)
		defer cancel()
	}
	var answer []byte
	err := ctx.Err()
	if err == nil {
		answer, err = g.agent.Invoke(ctx, to, function, payload)
	}
	if err == nil {
		return answer, nil
	}
	// The clock may have reached the deadline before ctx has: a function whose own context has ended with it was fast to say so.
	deadline, _ := ctx.Deadline()
	expired := !deadline.IsZero() && !time.Now().Before(deadline)
	if expired {
		<-ctx.Done()
	}
	if remote := (*RemoteError)(nil); errors.As(err, &remote) {
		g.complete(remote, to, function)
	}
	switch {
	case expired && errors.Is(ctx.Err(), context.DeadlineExceeded):
		after := max(0, deadline.Sub(begun).Round(time.Millisecond))
		err = &timeoutError{after: after, byDefault: !limited, cause: context.Cause(ctx), err: err}
	case ctx.Err() != nil:
		err = kvstore.ContextError(ctx)
	}
	switch err.(type) { //nolint:errorlint // the outermost alone counts: others are of further calls
	case *RemoteError, *CallError:
		return nil, err
	}
	return nil, &CallError{Worker: to, Func: function, Err: err}
}

// complete says where a RemoteError is from.
func (g *Group) complete(e *RemoteError, worker, function string) {
	if e.Worker.Name != "" {
		return
	}
	var member bool
	if e.Worker, member = g.Worker(worker); !member {
		e.Worker.Name = worker // it has left meanwhile
	}
	e.Func = function
}
