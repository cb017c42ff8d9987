package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
	"github.com/elasticrun/elasticrun/pkg/rpc/transport"
)

// ring is how the members of a dynamic group detect a death. Each member watches the member with the next higher id;
// the last one watches the first. So there are as many connections as members, and two neighbors observe each member.
// When a process is killed, its watches end at once. A host that is cut off is detected by keep-alive pings of gRPC
// from both ends.
type ring struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// watchRetryDelay is the pause before a member is watched again, if its watch has ended and it is still a member.
const watchRetryDelay = time.Second

// start starts the watches, which run until stop.
func (r *ring) start(ctx context.Context, a *grpcAgent) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wait.Go(func() { a.watchSuccessor(ctx) })
	r.wait.Go(func() { a.closeFormerConnections(ctx) })
}

// stop ends the watches with a goodbye and waits for their goroutines.
func (r *ring) stop() {
	if r.cancel != nil {
		r.cancel()
	}
	r.wait.Wait()
}

// watchSuccessor watches the next member until ctx ends or this worker is no longer a member.
func (a *grpcAgent) watchSuccessor(ctx context.Context) {
	for {
		view := a.dynamic.View()
		var retry <-chan time.Time // nil if there is no other member
		if next, ok := membership.Successor(view.Members, a.self.Incarnation); ok {
			a.watchMember(ctx, next)
			retry = time.After(watchRetryDelay)
		}
		select {
		case <-view.Changed: // the change that ended the watch, or the eviction that followed its end
		case <-retry:
		case <-a.dynamic.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// watchMember watches one member until it is no longer the successor, or the watch ends.
func (a *grpcAgent) watchMember(ctx context.Context, next membership.Record) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes sync.WaitGroup
	changes.Go(func() {
		defer cancel()
		a.awaitNewSuccessor(ctx, next)
	})
	err := a.client.Watch(ctx, next.Address, encodeWatchHello(next, a.self), nil)
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrClosed) {
		a.dynamic.Suspect(next.Incarnation)
	}
	cancel()
	changes.Wait()
}

// awaitNewSuccessor returns when next is no longer the successor of this worker.
func (a *grpcAgent) awaitNewSuccessor(ctx context.Context, next membership.Record) {
	for {
		view := a.dynamic.View()
		now, ok := membership.Successor(view.Members, a.self.Incarnation)
		if !ok || now.Incarnation != next.Incarnation {
			return
		}
		select {
		case <-view.Changed:
		case <-a.dynamic.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// closeFormerConnections closes the connections to former members.
func (a *grpcAgent) closeFormerConnections(ctx context.Context) {
	for {
		view := a.dynamic.View()
		addresses := make(map[string]bool, len(view.Members))
		for _, m := range view.Members {
			addresses[m.Address] = true
		}
		a.client.Keep(addresses)
		select {
		case <-view.Changed:
		case <-a.dynamic.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// encodeWatchHello returns the first message of a watch: the incarnations of the watched member and of the watcher.
func encodeWatchHello(to, from membership.Record) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, to.Incarnation), from.Incarnation)
}

// acceptWatch accepts the watch of another member. If the watch ends without a goodbye, the watcher becomes suspect.
func (a *grpcAgent) acceptWatch(hello []byte) (func(error), error) {
	if len(hello) != 16 || a.dynamic == nil {
		return nil, errMalformed
	}
	if binary.BigEndian.Uint64(hello) != a.self.Incarnation {
		return nil, ErrReplaced
	}
	from := binary.BigEndian.Uint64(hello[8:])
	return func(err error) {
		if err != nil && !errors.Is(err, transport.ErrClosed) {
			a.dynamic.Suspect(from)
		}
	}, nil
}
