package etcd

import (
	"context"
	"fmt"
	"net"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"
)

// KeepAlive implements coord.Store. It waits for OpTimeout at most.
func (s *Store) KeepAlive(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	ctx, cancel := s.op(ctx)
	defer cancel()
	left, err := s.keepAlives.renew(ctx)
	switch {
	case s.Err() != nil: // closed meanwhile
		return s.Err()
	case err != nil:
		return s.explain(ctx, "keep the session alive", err)
	case left <= 0:
		return s.lose("its time ran out")
	}
	return nil
}

// pulse is the stream of keep-alives. It stays open from one to the next, and is opened anew after an error.
type keepAliveStream struct {
	store   *Store
	lock    chan struct{} // holds one token: the right to use what follows
	stream  pb.Lease_LeaseKeepAliveClient
	cancel  context.CancelFunc // ends the stream
	stopped bool
}

func (p *keepAliveStream) init(s *Store) {
	p.store = s
	p.lock = make(chan struct{}, 1)
	p.lock <- struct{}{}
}

// beat renews the lease and returns how many seconds it then has: 0 if it has ended.
func (p *keepAliveStream) renew(ctx context.Context) (seconds int64, err error) {
	select {
	case <-p.lock:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { p.lock <- struct{}{} }()
	if p.stopped {
		return 0, context.Canceled
	}
	if p.stream == nil {
		if err := p.open(ctx); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	stop := context.AfterFunc(ctx, p.cancel)
	seconds, err = exchange(p.stream, int64(p.store.lease))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		address := peerOf(p.stream.Context()) //nolint:contextcheck // it knows the peer
		p.closeStream()
		if ctx.Err() != nil && time.Since(start) >= min(p.store.idleTimeout, p.store.options.OpTimeout)*9/10 {
			p.store.conns.drop(address) // nobody is there
		}
	}
	return seconds, err
}

// open opens the stream, which outlives ctx.
func (p *keepAliveStream) open(ctx context.Context) error {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	client, options := p.store.leaseClient()
	stream, err := client.LeaseKeepAlive(streamCtx, options...)
	if err != nil {
		stop()
		cancel()
		return err
	}
	p.stream, p.cancel = stream, cancel
	if !stop() {
		p.closeStream()
		return context.Cause(ctx)
	}
	return nil
}

// exchange sends a keep-alive and waits for its answer. Nothing else is on the stream.
func exchange(stream pb.Lease_LeaseKeepAliveClient, lease int64) (int64, error) {
	// What ended the stream is what Recv says, not Send.
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: lease})
	answer, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	if answer.ID != lease {
		return 0, fmt.Errorf("the answer is about lease %x, not %x", answer.ID, lease)
	}
	return answer.TTL, nil
}

// end ends the stream. It takes the turn for granted.
func (p *keepAliveStream) closeStream() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	for { // gRPC gives a stream back when Recv has told its end
		if _, err := p.stream.Recv(); err != nil {
			break
		}
	}
	p.stream, p.cancel = nil, nil
}

// stop ends the stream for good. A beat under way ends by its own time.
func (p *keepAliveStream) stop() {
	<-p.lock
	p.stopped = true
	p.closeStream()
	p.lock <- struct{}{}
}

// peerOf is who is at the other end of a stream with that context, or nil.
func peerOf(stream context.Context) net.Addr {
	if p, ok := peer.FromContext(stream); ok {
		return p.Addr
	}
	return nil
}
