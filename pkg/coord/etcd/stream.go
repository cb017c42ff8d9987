package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stream is one watch stream of etcd, with one watcher. Nothing is buffered here: while its user is busy, the server
// keeps what comes.
type stream struct {
	store   *Store
	client  pb.Watch_WatchClient
	cancel  context.CancelFunc
	answers chan *pb.WatchResponse
	done    chan struct{} // closed when receive has returned
	err     error         // why, once done is closed
}

// openStream watches the keys with a prefix from a revision on.
func (s *Store) openStream(ctx context.Context, prefix string, from int64) (*stream, error) {
	// A member that has lost its leader is to say so, and not to be silent.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	watches, options := s.watchClient()
	stop := time.AfterFunc(s.options.OpTimeout, cancel) // it waits for a connection
	client, err := watches.Watch(ctx, options...)
	if !stop.Stop() || err != nil {
		cancel()
		if err == nil {
			err = context.DeadlineExceeded
		}
		return nil, s.explain(ctx, "watch", err)
	}
	st := &stream{store: s, client: client, cancel: cancel, answers: make(chan *pb.WatchResponse), done: make(chan struct{})}
	create := &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), StartRevision: from}
	// What ended the stream is what Recv says, not Send. Fragments are not asked for: they would split commits.
	_ = client.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	go st.receive(ctx)
	return st, nil
}

func (st *stream) receive(ctx context.Context) {
	defer close(st.done)
	for {
		answer, err := st.client.Recv()
		if err != nil {
			st.err = err
			return
		}
		select {
		case st.answers <- answer:
		case <-ctx.Done(): // goes on until Recv tells the end
		}
	}
}

// close ends the stream.
func (st *stream) close() {
	st.cancel()
	<-st.done
}

// recv returns the next answer, with an error if the watch cannot go on after it; without events, it is a sign of life. A stream on which all is silent is asked for
// one, and after more silence it, and the connection below it, are taken for dead.
func (st *stream) recv(ctx context.Context) (*pb.WatchResponse, error) {
	for asked := false; ; asked = true {
		silence := time.NewTimer(st.store.idleTimeout)
		select {
		case answer := <-st.answers:
			silence.Stop()
			return answer, checkResponse(answer)
		case <-st.done:
			silence.Stop()
			return nil, st.store.explain(ctx, "watch", st.err)
		case <-silence.C:
		}
		if asked {
			st.store.conns.drop(peerOf(st.client.Context())) //nolint:contextcheck // it knows the peer
			return nil, fmt.Errorf("a watch was silent for %v", 2*st.store.idleTimeout)
		}
		progress := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
		_ = st.client.Send(&pb.WatchRequest{RequestUnion: progress}) // as above
	}
}

// judge returns why a watch cannot go on after an answer, or nil.
func checkResponse(answer *pb.WatchResponse) error {
	switch {
	case answer.CompactRevision != 0:
		return fmt.Errorf("etcd has compacted the revisions before %d", answer.CompactRevision)
	case answer.Canceled:
		return fmt.Errorf("etcd ended a watch: %s", answer.CancelReason)
	case answer.Fragment:
		return errors.New("etcd sent a fragment, which was not asked for")
	}
	return nil
}
