package rpc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
	"github.com/elasticrun/elasticrun/pkg/rpc/transport"
)

// grpcAgent is the [Agent] of the backend [GRPC]. It connects package membership, which knows the members, with package
// transport, which reaches them.
type grpcAgent struct {
	handle Handler
	store  kvstore.Store // the keys of the group in the store
	limit  int           // largest payload in bytes
	log    zerolog.Logger

	server *transport.Server
	client *transport.Pool
	work   *membership.Work

	dynamic *membership.Dynamic // nil in a static group
	self    membership.Record   // this worker; without the id in a dynamic group
	ring    ring                // in a dynamic group
	latest  atomic.Pointer[snapshot]

	ending sync.Mutex // serializes Shutdown
	ended  bool
	done   chan struct{} // closed when ended becomes true
}

var _ Agent = (*grpcAgent)(nil)

func newGRPCAgent(args InitArgs, options *GRPCOptions, self membership.Record) *grpcAgent {
	a := &grpcAgent{
		handle: args.Handle, store: options.groupStore(args.Store), limit: cmp.Or(options.MaxPayload, DefaultMaxPayload),
		log: args.Logger, work: membership.NewWork(), self: self, done: make(chan struct{}),
	}
	if args.WorldSize == 0 {
		a.dynamic = membership.NewDynamic(a.store, self, peers{a}, membership.Options{
			LockTimeout: cmp.Or(options.LockTimeout, DefaultLockTimeout), Logger: args.Logger,
		})
	}
	return a
}

// join makes this worker a member of the group.
func (a *grpcAgent) join(ctx context.Context) error {
	if a.dynamic == nil {
		members, err := membership.FormStatic(ctx, a.store, a.self, a.connectAll)
		if err == nil {
			a.latest.Store(newSnapshot(a.self, 0, members, nil))
		}
		return err
	}
	if err := a.dynamic.Join(ctx); err != nil {
		return err
	}
	a.ring.start(ctx, a)
	return nil
}

// record returns the record that this worker has published.
func (a *grpcAgent) record() membership.Record {
	if a.dynamic != nil {
		return a.dynamic.Self()
	}
	return a.self
}

// snapshot returns the newest snapshot of the members.
func (a *grpcAgent) snapshot() *snapshot {
	latest := a.latest.Load()
	if latest != nil && !latest.outdated() {
		return latest
	}
	view := a.dynamic.View()
	latest = newSnapshot(a.self, view.Version, view.Members, view.Changed)
	a.latest.Store(latest)
	return latest
}

// Self implements Agent.
func (a *grpcAgent) Self() WorkerInfo { return infoOf(a.record()) }

// View implements Agent.
func (a *grpcAgent) View() View { return a.snapshot().view }

// Devices implements Agent.
func (a *grpcAgent) Devices() (own []device.Device, maps, reverse map[string]device.Map) {
	r := a.snapshot()
	return r.devices, a.self.DeviceMaps, r.reverse
}

// Done implements Agent.
func (a *grpcAgent) Done() <-chan struct{} {
	if a.dynamic != nil {
		return a.dynamic.Done()
	}
	return a.done
}

// Invoke implements Agent.
func (a *grpcAgent) Invoke(ctx context.Context, to, function string, payload []byte) ([]byte, error) {
	if a.dynamic != nil && a.dynamic.Err() != nil {
		return nil, ErrEvicted
	}
	r, own := a.snapshot(), to == a.self.Name
	member, ok := r.members[to]
	switch {
	case !ok && !own: // a worker that has left may still run functions, which may call the worker itself
		return nil, r.unknownWorker()
	case len(payload) > a.limit:
		return nil, &TooLargeError{What: directionRequest, Size: int64(len(payload)), Limit: int64(a.limit)}
	}
	// A nested call belongs to the call that its function serves, so it may start even while this worker shuts down.
	if serves(ctx, func(g *Group) bool { return g.agent == Agent(a) }) {
		if err := a.work.Begin(ctx); err != nil {
			return nil, err
		}
		defer a.work.End()
	} else {
		if err := a.work.BeginRoot(); err != nil {
			return nil, err
		}
		defer a.work.EndRoot()
	}
	if own {
		return a.invokeSelf(ctx, function, payload)
	}
	message, err := a.client.Call(ctx, member.Address, a.request(member, function, payload).encode()...)
	if err != nil {
		return nil, convertTransportError(err, len(payload))
	}
	return decodeAnswer(message)
}

// invokeSelf runs a function of this worker as if another worker had called it.
func (a *grpcAgent) invokeSelf(ctx context.Context, function string, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := a.work.Begin(ctx); err != nil {
		return nil, err
	}
	type outcome struct {
		answer []byte
		err    error
	}
	ran := make(chan outcome, 1)
	go func() { // this goroutine outlives the call if the function ignores the end of its context
		defer a.work.End()
		answer, err := a.run(ctx, a.Self(), function, bytes.Clone(payload))
		ran <- outcome{bytes.Clone(answer), err}
	}()
	select {
	case o := <-ran:
		return o.answer, o.err
	case <-ctx.Done():
		return nil, kvstore.ContextError(ctx)
	case <-a.done:
		cancel(ErrShutdown)
		return nil, ErrShutdown
	}
}

// Shutdown implements Agent. After a graceful Shutdown that failed, the agent refuses new calls of this worker, and the
// caller must call Shutdown again, not gracefully.
func (a *grpcAgent) Shutdown(ctx context.Context, graceful bool) error {
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return nil
	}
	if graceful {
		if err := a.drain(ctx); err != nil {
			return err
		}
		if err := a.server.Shutdown(ctx); err != nil {
			return fmt.Errorf("functions are still running: %w", err)
		}
	}
	a.ended = true
	close(a.done)
	a.work.Close()
	if a.dynamic != nil {
		a.dynamic.Quiesce()
	}
	// Close the sockets first, because their end shows the other members that this worker has ended. Only a worker that
	// leaves says goodbye.
	err := errors.Join(a.server.Close(), a.client.Close())
	a.ring.stop()
	if a.dynamic != nil {
		err = errors.Join(err, a.dynamic.Close())
	}
	return err
}

// drain waits until no member needs this worker. In a dynamic group, this worker then leaves.
func (a *grpcAgent) drain(ctx context.Context) error {
	if a.dynamic == nil {
		return a.work.Drain(ctx, a.store, a.self)
	}
	// While this worker waits for an answer, it stays a member: the called function may call it back.
	if err := a.work.WaitRoots(ctx); err != nil {
		return err
	}
	if a.dynamic.Err() != nil {
		return ErrEvicted
	}
	if err := a.dynamic.Leave(ctx); err != nil {
		return err
	}
	a.ring.stop()
	return a.work.Wait(ctx)
}
