package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// Group is a group of workers that call each other, seen by one member. [Init] returns it, and the caller ends it with
// Shutdown or Close. It is safe for concurrent use.
type Group struct {
	agent        Agent
	timeout      time.Duration // of calls whose context has no deadline; no limit if not positive
	closeAgent   func() error  // shuts down the agent, not gracefully
	releaseStore func() error  // releases the store that Init opened; may be nil

	mu             sync.Mutex
	calls          sync.WaitGroup          // goroutines of futures; nothing is added once closed is set
	roots          int                     // running futures that were not started by a function of the group
	rootsDone      chan struct{}           // closed when roots is 0 and ending is set
	closed         bool                    // no future can start anymore
	ending         bool                    // Shutdown or Close was called
	cancelShutdown context.CancelCauseFunc // cancels the graceful shutdown; nil if there is none
	ended          chan struct{}           // closed when the group has ended and the errors below are final

	shutdownErr error // why the shutdown was not graceful
	closeErr    error
}

// newGroup uses ctx only for its values.
func newGroup(ctx context.Context, agent Agent, timeout time.Duration, releaseStore func() error) *Group {
	closeAgent := func() error { return agent.Shutdown(context.WithoutCancel(ctx), false) }
	return &Group{
		agent: agent, timeout: timeout, closeAgent: closeAgent, releaseStore: releaseStore,
		ended: make(chan struct{}), rootsDone: make(chan struct{}),
	}
}

// Self returns this worker.
func (g *Group) Self() WorkerInfo { return g.agent.Self() }

// View returns the current members. In a dynamic group its Changed announces the next view.
func (g *Group) View() View { return g.agent.View() }

// Worker returns the member of that name, and whether there is one.
func (g *Group) Worker(name string) (WorkerInfo, bool) {
	workers := g.agent.View().Workers
	if i := slices.IndexFunc(workers, func(w WorkerInfo) bool { return w.Name == name }); i >= 0 {
		return workers[i], true
	}
	return WorkerInfo{}, false
}

// Devices returns the devices that this worker has declared. If it has declared none, Devices returns the devices of
// this worker that its own maps and the maps of other workers use.
func (g *Group) Devices() []device.Device {
	own, _, _ := g.agent.Devices()
	return slices.Clone(own)
}

// DeviceMap returns the device map of this worker for calls to another worker, or nil.
func (g *Group) DeviceMap(to string) device.Map {
	_, forward, _ := g.agent.Devices()
	return maps.Clone(forward[to])
}

// ReverseDeviceMap returns the reverse of the map that another worker has for this worker, or nil.
func (g *Group) ReverseDeviceMap(from string) device.Map {
	_, _, reverse := g.agent.Devices()
	return maps.Clone(reverse[from])
}

// Done returns a channel that is closed when this worker is no longer a member: after Shutdown or Close, and after the
// other members have evicted it. An evicted worker can only Close.
func (g *Group) Done() <-chan struct{} { return g.agent.Done() }

// Shutdown ends the group gracefully. In a static group all members call it. It waits until no member has a call under
// way or can start one; meanwhile this worker continues to serve calls. In a dynamic group this worker leaves: Shutdown
// waits for the calls of this worker and for the functions that run in it.
//
// If ctx ends first, or something else fails, the group ends as with Close, and Shutdown returns the reason. If ctx has
// no deadline, the limit is [ShutdownTimeout]. When the first call returns, nothing of the group is left, except
// functions that ignore the end of their contexts. A later call waits for the first, or until its own ctx ends. A
// function of the group cannot call Shutdown, because Shutdown would wait for that function.
func (g *Group) Shutdown(ctx context.Context) error {
	if g.serves(ctx) {
		return errors.New("shut down the group: a function of the group cannot do this, " +
			"because Shutdown waits for the function; call Close, or call Shutdown outside of functions")
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, ShutdownTimeout,
			fmt.Errorf("not all members finished within %s; to wait longer, pass a context with a deadline",
				seconds.Format(ShutdownTimeout)))
		defer cancel()
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if g.beginEnd(cancel) {
		if err := g.shutdownAgent(run); err != nil {
			g.shutdownErr = fmt.Errorf("shut down the group gracefully: %w", err)
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
	case <-g.ended: // if both are ready, the result of the group counts
		return errors.Join(g.shutdownErr, g.closeErr)
	default:
		return fmt.Errorf("shut down the group: %w", kvstore.ContextError(ctx))
	}
}

// Close ends the group at once. Calls under way fail with [ErrShutdown], and other members treat the end as a death.
// Close also ends a Shutdown under way. It waits for the goroutines of the group. After Shutdown it does nothing.
func (g *Group) Close() error {
	if g.beginEnd(nil) {
		g.closeErr = g.closeAgent()
		g.finish()
	}
	<-g.ended
	return g.closeErr
}

// shutdownAgent shuts down the agent gracefully. It first waits for the futures that started before, because their
// calls may not have reached the agent yet.
func (g *Group) shutdownAgent(ctx context.Context) error {
	select {
	case <-g.rootsDone:
	case <-ctx.Done():
		return fmt.Errorf("calls of this worker are still under way: %w", kvstore.ContextError(ctx))
	}
	return g.agent.Shutdown(ctx, true)
}

// serves reports whether ctx is the context of a function of the group, or derived from it.
func (g *Group) serves(ctx context.Context) bool {
	return serves(ctx, func(of *Group) bool { return of == g })
}

// beginEnd reports whether the caller is the first to end the group; that caller must end it. A Shutdown passes the
// function that cancels it. Close passes nil, and cancels a Shutdown under way.
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

// finish completes the end after the shutdown of the agent: it waits for the goroutines of futures and releases the
// store.
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

// start runs do in a goroutine of the group and returns true. It returns false if the group has ended. It also returns
// false if the group is ending and ctx is not that of one of its functions.
func (g *Group) start(ctx context.Context, do func()) bool {
	nested := g.serves(ctx)
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

// call sends a payload and returns the payload of the answer. Its error is a *RemoteError or a *CallError.
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
	// The clock can pass the deadline before ctx is done. If the called function has then already returned the end of its
	// own context as an error, the call has timed out all the same.
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
	switch err.(type) { //nolint:errorlint // only the outermost error is of this call
	case *RemoteError, *CallError:
		return nil, err
	}
	return nil, &CallError{Worker: to, Func: function, Err: err}
}

// complete fills in where a RemoteError comes from.
func (g *Group) complete(e *RemoteError, worker, function string) {
	if e.Worker.Name != "" {
		return
	}
	var member bool
	if e.Worker, member = g.Worker(worker); !member {
		e.Worker.Name = worker // the worker has left
	}
	e.Func = function
}
