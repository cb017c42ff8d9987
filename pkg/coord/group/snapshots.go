package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// snapshot is a snapshot on its way to another member. It has its own connection, so that it delays no other message.
// The connection ends with the snapshot: the receiver closes it after reading the snapshot.
type snapshot struct {
	addr   string
	term   uint64 // the term in which this member leads; in a later term the receiver ignores the snapshot
	cancel context.CancelFunc
	sent   atomic.Int64 // bytes that were written to the connection
	seen   int64        // the value of sent at the previous tick
}

// readTimeout is how long the receiver may take to read the last part of a snapshot and decode all of it. snapshotPause
// is the pause after a snapshot that was not received, because encoding another one is expensive.
const (
	readTimeout   = 30 * time.Second
	snapshotPause = time.Second
)

// sendSnapshot sends a snapshot to the member at addr, unless one is already on its way there. The loop calls it.
func (m *Member) sendSnapshot(addr string, message replica.Message) {
	id := message.To()
	if m.snapshots[id] != nil {
		return // after that snapshot the other member lacks less
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &snapshot{addr: addr, term: m.replica.Status().Term, cancel: cancel}
	m.snapshots[id] = s
	hello := m.hello()
	m.running.Go(func() {
		defer cancel()
		err := m.deliver(ctx, s, hello, message)
		if err != nil && ctx.Err() == nil {
			m.log.Debug().Err(err).Str("member", addr).Msg("a snapshot has not reached a member of the store's group")
			select {
			case <-time.After(snapshotPause):
			case <-ctx.Done():
			}
		}
		m.call(func() { m.snapshotEnds(id, s, err) })
	})
}

// deliver encodes and sends a snapshot. It returns when the other member has read the snapshot.
func (m *Member) deliver(ctx context.Context, s *snapshot, hello []byte, message replica.Message) error {
	b, err := message.Encode()
	if err != nil {
		return err
	}
	nc, _, err := m.connect(ctx, s.addr, nil, nil)
	if err != nil {
		return err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	b = slices.Concat(hello, frame{kind: frameRaft, message: b}.encode())
	if err := write(nc, b, func(n int) { s.sent.Add(int64(n)) }); err != nil {
		return err
	}
	nc.SetReadDeadline(time.Now().Add(readTimeout))
	if _, err = nc.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = errFrame // receivers send nothing
	}
	return fmt.Errorf("wait until the snapshot has been read: %w", err)
}

// snapshotEnds notifies the replica if a snapshot has failed. The receiver itself acknowledges a snapshot that arrived.
func (m *Member) snapshotEnds(id replica.ID, s *snapshot, err error) {
	if m.snapshots[id] != s {
		return // the snapshot belongs to a former group
	}
	delete(m.snapshots, id)
	if err != nil && m.replica != nil {
		m.replica.SnapshotFailed(id)
	}
}

// watchSnapshots ends snapshots to former members and snapshots of a former term. If a part of a snapshot was written
// since the last tick, the receiver is alive and not too slow. The loop calls it once a tick.
func (m *Member) watchSnapshots(status replica.Status) {
	members := status.All()
	for id, s := range m.snapshots {
		sent := s.sent.Load()
		switch {
		case s.term != status.Term || !slices.Contains(members, id):
			s.cancel()
		case sent > s.seen:
			m.replica.SnapshotProgress(id)
			if _, known := m.manager.adopted[id]; known {
				m.manager.adopt(id)
			}
		}
		s.seen = sent
	}
}

// sendChunk is how many bytes a member must read within sendTimeout.
const sendChunk = 64 << 10

// write writes b in parts, and calls wrote with the size of each.
func write(nc net.Conn, b []byte, wrote func(int)) error {
	for part := range slices.Chunk(b, sendChunk) {
		nc.SetWriteDeadline(time.Now().Add(sendTimeout))
		n, err := nc.Write(part)
		if wrote(n); err != nil {
			return err
		}
	}
	return nil
}
