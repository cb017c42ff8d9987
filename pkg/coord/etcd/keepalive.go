package etcd

import (
	"context"
	"fmt"
	"net"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"
)

// KeepAlive implements coord.Store. It waits at most OpTimeout.
func (s *Store) KeepAlive(ctx context.Context) error {
	if err := s.Err(); err != nil {
		return err
	}
	ctx, cancel := s.op(ctx)
	defer cancel()
	left, err := s.keepAlives.renew(ctx)
	switch {
	case s.Err() != nil: // closed in the meantime
		return s.Err()
	case err != nil:
		return s.explain(ctx, "keep the session alive", err)
	case left <= 0:
		return s.lose("its lease has expired")
	}
	return nil
}

// keepAliveStream is the stream of keep-alive requests. It stays open between requests and is reopened after an error.
type keepAliveStream struct {
	store   *Store
	lock    chan struct{} // holds a token while somebody uses the fields below; capacity 1
	stream  pb.Lease_LeaseKeepAliveClient
	cancel  context.CancelFunc // ends the stream
	stopped bool
}

// renew renews the lease and returns its remaining seconds, which are 0 if it has ended.
func (p *keepAliveStream) renew(ctx context.Context) (seconds int64, err error) {
	select {
	case p.lock <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-p.lock }()
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
		address := peerOf(p.stream.Context()) //nolint:contextcheck // the stream's context has the peer
		p.closeStream()
		if ctx.Err() != nil && time.Since(start) >= min(p.store.idleTimeout, p.store.options.OpTimeout)*9/10 {
			p.store.conns.drop(address) // the server is silent
		}
	}
	return seconds, err
}

// open opens the stream, which outlives ctx.
func (p *keepAliveStream) open(ctx context.Context) error {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	conn, options := p.store.streams()
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(streamCtx, options...)
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

// exchange sends a keep-alive request and waits for its answer. The stream carries nothing else.
func exchange(stream pb.Lease_LeaseKeepAliveClient, lease int64) (int64, error) {
	// An error of Send is always io.EOF; Recv returns the reason.
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: lease})
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	if resp.ID != lease {
		return 0, fmt.Errorf("the answer is about lease %x, not %x", resp.ID, lease)
	}
	return resp.TTL, nil
}

// closeStream ends the stream. The caller holds lock.
func (p *keepAliveStream) closeStream() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	for { // gRPC releases a stream when Recv has returned its error
		if _, err := p.stream.Recv(); err != nil {
			break
		}
	}
	p.stream, p.cancel = nil, nil
}

// stop ends the stream for good. It waits for a renew in progress, which ends by its own timeout.
func (p *keepAliveStream) stop() {
	p.lock <- struct{}{}
	p.stopped = true
	p.closeStream()
	<-p.lock
}

// peerOf returns the address of the peer of a stream with that context, or nil.
func peerOf(stream context.Context) net.Addr {
	if p, ok := peer.FromContext(stream); ok {
		return p.Addr
	}
	return nil
}
