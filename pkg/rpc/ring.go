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

// ring is how the members of a dynamic group notice a death. Each holds a watch to the member with the next higher id, the last one to the first:
// as many connections as members, and each member is known to two. A process that is killed ends its watches at once; one whose host
// is cut off is asked for a sign of life, by gRPC's keep-alive at both ends.
type ring struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// watchRetryDelay is the pause before a member is watched retry whose watch has ended and that is a member still.
const watchRetryDelay = time.Second

// start keeps the watch until end.
func (r *ring) start(ctx context.Context, a *grpcAgent) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.wait.Go(func() { a.watchSuccessor(ctx) })
	r.wait.Go(func() { a.closeFormerConnections(ctx) })
}

// end says goodbye, where there is a connection yet.
func (r *ring) stop() {
	if r.cancel != nil {
		r.cancel()
	}
	r.wait.Wait()
}

// watchSuccessor watches whoever is next, until ctx ends or this is no member any more.
func (a *grpcAgent) watchSuccessor(ctx context.Context) {
	for {
		view := a.dynamic.View()
		var retry <-chan time.Time // nil where there is nobody to watch
		if next, ok := membership.Successor(view.Members, a.static.Incarnation); ok {
			a.watchMember(ctx, next)
			retry = time.After(watchRetryDelay)
		}
		select {
		case <-view.Changed: // which is why the watch has ended, or what follows from its end
		case <-retry:
		case <-a.dynamic.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// watch watches one member until it is not the next any more, or the watch ends.
func (a *grpcAgent) watchMember(ctx context.Context, next membership.Record) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var changes sync.WaitGroup
	changes.Go(func() {
		defer cancel()
		a.awaitNewSuccessor(ctx, next)
	})
	err := a.client.Watch(ctx, next.Address, encodeWatchHello(next, a.static), nil)
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrClosed) {
		a.dynamic.Suspect(next.Incarnation)
	}
	cancel()
	changes.Wait()
}

// stays returns when next is the next member no more.
func (a *grpcAgent) awaitNewSuccessor(ctx context.Context, next membership.Record) {
	for {
		view := a.dynamic.View()
		now, ok := membership.Successor(view.Members, a.static.Incarnation)
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

// closeFormerConnections lets go of the connections to those that are no members any more.
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

// encodeWatchHello is what a watch begins with: who is meant, and who watches.
func encodeWatchHello(to, from membership.Record) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, to.Incarnation), from.Incarnation)
}

// watched is told of each watch that another member holds to this one. A watch that ends without a goodbye makes its holder suspect.
func (a *grpcAgent) acceptWatch(hello []byte) (func(error), error) {
	if len(hello) != 16 || a.dynamic == nil {
		return nil, errMalformed
	}
	if binary.BigEndian.Uint64(hello) != a.static.Incarnation {
		return nil, ErrReplaced
	}
	from := binary.BigEndian.Uint64(hello[8:])
	return func(err error) {
		if err != nil && !errors.Is(err, transport.ErrClosed) {
			a.dynamic.Suspect(from)
		}
	}, nil
}
