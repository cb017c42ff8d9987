package group

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticrun/elasticrun/internal/tcplimit"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// peer sends frames to one member. Frames may be lost: raft repeats the messages that matter.
type peer struct {
	addr   string
	frames chan queuedFrame
	cancel context.CancelFunc
	used   int // the tick of the last frame
}

// queuedFrame is a frame that waits to be sent.
type queuedFrame struct {
	b       []byte
	release func() // called when the frame was sent, was lost, or waits for an unreachable member
}

const (
	// maxQueued is how many frames wait for a member that does not read; further frames are lost.
	maxQueued = 64
	// dialPause is the pause after a failed attempt to connect, and maxTries the number of attempts for one frame.
	dialPause = 100 * time.Millisecond
	maxTries  = 20
	// formerTicks is how long the connection to a former member stays open after the last frame.
	formerTicks = 100
	// sendTimeout is how long a member may take to read sendChunk bytes.
	sendTimeout = 5 * time.Second
	// ackTimeout is how long a member's kernel may acknowledge nothing before the connection is replaced.
	ackTimeout = 2 * time.Second
)

// hello returns the first frame of a connection. The loop calls it.
func (m *Member) hello() []byte {
	return frame{kind: frameHello, addr: m.opts.Addr, instance: m.instance}.encode()
}

// sendMessages sends the replica's messages. The loop calls it.
func (m *Member) sendMessages(messages []replica.Message) {
	for _, message := range messages {
		addr := m.addrOf(message.To())
		if addr == "" {
			continue
		}
		if message.IsSnapshot() {
			m.sendSnapshot(addr, message)
			continue
		}
		b, err := message.Encode()
		if err != nil {
			m.log.Error().Err(err).Msg("cannot send to a member of the store's group")
			continue
		}
		m.send(addr, frame{kind: frameRaft, message: b})
	}
}

// send queues a frame for the member at addr. done is closed when the frame was written to a connection, was lost, or
// waits for an unreachable member. The loop calls it.
func (m *Member) send(addr string, f frame) (done <-chan struct{}) {
	p := m.peers[addr]
	if p == nil {
		ctx, cancel := context.WithCancel(context.Background())
		p = &peer{addr: addr, frames: make(chan queuedFrame, maxQueued), cancel: cancel}
		m.peers[addr] = p
		hello := m.hello()
		m.running.Go(func() { m.sendAll(ctx, p, hello) })
	}
	p.used = m.manager.now
	released := make(chan struct{})
	q := queuedFrame{f.encode(), sync.OnceFunc(func() { close(released) })}
	select {
	case p.frames <- q:
	default:
		q.release()
	}
	return released
}

// disconnectFormer ends the connections to former members once they have received the last frames.
func (m *Member) disconnectFormer(status replica.Status) {
	members := status.All()
	for addr, p := range m.peers {
		isMember := slices.ContainsFunc(members, func(id replica.ID) bool { return m.addrOf(id) == addr })
		if !isMember && m.manager.now-p.used >= formerTicks {
			p.cancel()
			delete(m.peers, addr)
		}
	}
}

// disconnect ends the connections to all members.
func (m *Member) disconnect() {
	for _, p := range m.peers {
		p.cancel()
	}
	for _, s := range m.snapshots {
		s.cancel()
	}
	clear(m.peers)
	clear(m.snapshots)
}

// sendAll sends the frames of p until ctx ends. It connects only when it has a frame to send, so that it does not
// disturb former members.
func (m *Member) sendAll(ctx context.Context, p *peer, hello []byte) {
	var queue []queuedFrame // frames to send first
	for {
		if len(queue) == 0 {
			select {
			case q := <-p.frames:
				queue = append(queue, q)
			case <-ctx.Done():
				return
			}
		}
		var err error
		if queue, err = m.sendFrom(ctx, p, hello, queue); ctx.Err() != nil {
			return
		}
		m.log.Debug().Err(err).Str("member", p.addr).Msg("no connection to another member of the store's group")
		m.call(func() { m.unreachable(p) })
		if errors.Is(err, errEnded) {
			m.considerEnd(ctx, p)
		}
	}
}

// unreachable notifies the replica that messages to the members at p's address are lost.
func (m *Member) unreachable(p *peer) {
	if m.replica == nil || m.peers[p.addr] != p {
		return
	}
	status := m.replica.Status()
	for _, id := range status.All() {
		if m.addrOf(id) == p.addr {
			m.replica.Unreachable(id)
		}
	}
}

// sendFrom connects, and sends the queue and then further frames until the connection breaks or ctx ends. It returns
// the frames that it has not begun to send. If it cannot connect, the queue is lost.
func (m *Member) sendFrom(
	ctx context.Context, p *peer, hello []byte, queue []queuedFrame,
) (left []queuedFrame, err error) {
	nc, queue, err := m.connect(ctx, p.addr, p.frames, queue)
	if err != nil {
		for _, q := range queue {
			q.release()
		}
		return nil, err
	}
	// broken is closed when the connection has ended. Without it, a frame for a new process at the same address would be
	// written to the former process's connection and be lost without an error.
	broken := make(chan struct{})
	m.running.Go(func() {
		defer close(broken)
		_, _ = nc.Read(make([]byte, 1)) // the other member sends nothing on this connection
	})
	defer func() { nc.Close(); <-broken }()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	for begin := hello; ; begin = nil {
		if len(queue) == 0 {
			select {
			case q := <-p.frames:
				queue = append(queue, q)
			case <-broken:
				return nil, errEnded
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		select {
		case <-broken:
			return queue, errEnded
		default:
		}
		err := write(nc, slices.Concat(begin, queue[0].b), func(int) {})
		queue[0].release()
		if queue = queue[1:]; err != nil {
			return queue, fmt.Errorf("%w: %w", errEnded, err)
		}
	}
}

// errEnded is the error of an established connection that broke. A failed dial has other errors.
var errEnded = errors.New("the connection has ended")

// considerEnd notifies the replica that the process of the member at p has ended, if that member led and nobody listens
// at its address any more. considerEnd is called only when an established connection to the member has just ended. So a
// firewall that refuses all connections never leads to this notification.
func (m *Member) considerEnd(ctx context.Context, p *peer) {
	leader, _ := ask(m, func() replica.ID {
		if m.replica != nil && m.peers[p.addr] == p {
			if id := m.replica.Status().Leader; id != 0 && m.addrOf(id) == p.addr {
				return id
			}
		}
		return 0
	})
	if leader == 0 {
		return
	}
	for range endTries { // a listener may end a moment after the connections
		nc, err := m.dial(ctx, p.addr)
		if err == nil {
			nc.Close()
			return
		}
		if failed, ok := errors.AsType[*coord.DialError](err); ok && failed.Obstacle == coord.ObstacleRefused {
			m.call(func() {
				if m.replica != nil && m.peers[p.addr] == p {
					m.replica.LeaderEnded(leader)
				}
			})
			return
		}
		select {
		case <-time.After(endPause):
		case <-ctx.Done():
			return
		}
	}
}

// endTries is how often considerEnd checks whether somebody listens, with a pause of endPause between checks.
const (
	endTries = 5
	endPause = 20 * time.Millisecond
)

// connect connects to the member at addr, with up to maxTries attempts. Meanwhile it adds further frames to the queue,
// which it returns. After a failed attempt it releases all of them.
func (m *Member) connect(
	ctx context.Context, addr string, further <-chan queuedFrame, queue []queuedFrame,
) (nc net.Conn, all []queuedFrame, err error) {
	for tries := 1; ; tries++ {
		if nc, err = m.dial(ctx, addr); err == nil || tries == maxTries {
			return nc, queue, err
		}
		for _, q := range queue {
			q.release()
		}
		for pause := time.After(dialPause); pause != nil; {
			select {
			case <-pause:
				pause = nil
			case q := <-further:
				if q.release(); len(queue) < maxQueued {
					queue = append(queue, q)
				}
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			}
		}
	}
}

// dial makes one attempt to connect to the member at addr.
func (m *Member) dial(ctx context.Context, addr string) (net.Conn, error) {
	return m.dialWithin(ctx, addr, m.opts.Dial.Timeout)
}

// dialWithin is dial with a bound for the connect and the handshake, each; 0 means the default.
func (m *Member) dialWithin(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
	opts := m.opts.Dial
	opts.Addr, opts.Timeout = addr, timeout
	connect := m.opts.Connect
	if connect == nil {
		connect = connectTCP
	}
	opts.Conn = func(ctx context.Context) (net.Conn, error) { return connect(ctx, addr) }
	nc, err := coord.DialMember(ctx, opts)
	m.noteDial(ctx, addr, err)
	return nc, err
}

// connectTCP connects to addr by TCP. The other member sends nothing on the connection. So only the kernel can notice
// that data does not arrive, for example while a link is cut.
func connectTCP(ctx context.Context, addr string) (net.Conn, error) {
	dialer := net.Dialer{Control: tcplimit.Control(ackTimeout)}
	return dialer.DialContext(ctx, "tcp", addr)
}

// incoming is a frame from another member, with its connection and the connection's hello.
type incoming struct {
	frame
	from    frame // the hello
	message replica.Message
	nc      net.Conn     // receive reads it and closes it
	refused *atomic.Bool // receive must end
	answer  chan<- frame // gets the answer to a request, or a zero frame for none
}

// refuse ends the connection that the frame came on. It does not close the connection, because that may take time.
func (in incoming) refuse() {
	in.refused.Store(true)
	in.nc.SetReadDeadline(time.Unix(1, 0))
}

// receive reads the frames of a member's connection until it breaks or m ends.
func (m *Member) receive(nc net.Conn) {
	nc.SetReadDeadline(time.Now().Add(sendTimeout))
	hello, err := readFrame(nc, maxHello)
	if err != nil || hello.kind != frameHello {
		return
	}
	answers := make(chan frame, 1)
	var refused atomic.Bool
	for {
		in := incoming{from: hello, nc: nc, refused: &refused, answer: answers}
		nc.SetReadDeadline(time.Time{})
		if refused.Load() { // if it is refused later, that ends the read
			return
		}
		if in.frame, err = m.reading.next(nc); err != nil {
			return
		}
		if in.kind == frameRaft {
			if in.message, err = replica.Decode(in.frame.message); err != nil {
				m.log.Warn().Err(err).Str("member", hello.addr).Msg("closed the connection of a member of the store's group")
				return
			}
			in.frame.message = nil
		}
		select {
		case m.inbox <- in:
		case <-m.done:
			return
		}
		switch {
		case in.kind == frameTakeOver, in.kind == frameReach:
			select {
			case f := <-answers:
				if f.kind != 0 {
					nc.SetWriteDeadline(time.Now().Add(sendTimeout))
					_, _ = nc.Write(f.encode())
				}
			case <-m.done:
			}
			return
		case in.kind == frameRaft && in.message.IsSnapshot():
			return // a connection with such a message carries no other
		}
	}
}
