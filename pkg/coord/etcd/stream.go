package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// stream is one watch stream of etcd with one watcher. It buffers nothing: while its user is busy, the server keeps the
// events.
type stream struct {
	store     *Store
	client    pb.Watch_WatchClient
	cancel    context.CancelFunc
	responses chan *pb.WatchResponse
	done      chan struct{} // closed when receive has returned
	err       error         // why receive has returned; set before done is closed
}

// openStream watches the keys that begin with prefix, from a revision on.
func (s *Store) openStream(ctx context.Context, prefix string, from int64) (*stream, error) {
	// A member without a leader must return an error instead of staying silent.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	conn, options := s.streams()
	stop := time.AfterFunc(s.options.OpTimeout, cancel) // Watch waits for a connection
	client, err := pb.NewWatchClient(conn).Watch(ctx, options...)
	if !stop.Stop() || err != nil {
		cancel()
		if err == nil {
			err = context.DeadlineExceeded
		}
		return nil, s.explain(ctx, "watch", err)
	}
	st := &stream{
		store: s, client: client, cancel: cancel, responses: make(chan *pb.WatchResponse), done: make(chan struct{}),
	}
	request := &pb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), StartRevision: from,
	}
	// An error of Send is always io.EOF; Recv returns the reason. The watch does not allow fragments, which would split
	// commits.
	_ = client.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}})
	go st.receive(ctx)
	return st, nil
}

func (st *stream) receive(ctx context.Context) {
	defer close(st.done)
	for {
		resp, err := st.client.Recv()
		if err != nil {
			st.err = err
			return
		}
		select {
		case st.responses <- resp:
		case <-ctx.Done(): // continue until Recv returns the error
		}
	}
}

// close ends the stream.
func (st *stream) close() {
	st.cancel()
	<-st.done
}

// recv returns the next response, and an error if the watch cannot continue after it. A response without events only
// shows that the server is alive. After idleTimeout of silence recv sends a progress request. After another idleTimeout
// it gives up the stream and drops the stream's connection.
func (st *stream) recv(ctx context.Context) (*pb.WatchResponse, error) {
	for asked := false; ; asked = true {
		idle := time.NewTimer(st.store.idleTimeout)
		select {
		case resp := <-st.responses:
			idle.Stop()
			return resp, checkResponse(resp)
		case <-st.done:
			idle.Stop()
			return nil, st.store.explain(ctx, "watch", st.err)
		case <-idle.C:
		}
		if asked {
			st.store.conns.drop(peerOf(st.client.Context())) //nolint:contextcheck // the stream's context has the peer
			return nil, fmt.Errorf("a watch was silent for %s", seconds.Format(2*st.store.idleTimeout))
		}
		progress := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
		_ = st.client.Send(&pb.WatchRequest{RequestUnion: progress}) // see openStream about the error
	}
}

// checkResponse returns why a watch cannot continue after a response, or nil.
func checkResponse(resp *pb.WatchResponse) error {
	switch {
	case resp.CompactRevision != 0:
		return fmt.Errorf("etcd has compacted the revisions before %d", resp.CompactRevision)
	case resp.Canceled:
		return fmt.Errorf("etcd ended a watch: %s", resp.CancelReason)
	case resp.Fragment:
		return errors.New("etcd sent a fragment, which was not asked for")
	}
	return nil
}
