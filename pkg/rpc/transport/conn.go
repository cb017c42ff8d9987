package transport

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// minKeepAlive is the least that kernels count in.
const minKeepAlive = time.Second

// conn is a connection to one peer, that gRPC makes when it is used, and again after it broke.
type conn struct {
	addr string
	opts ClientOptions
	grpc *grpc.ClientConn

	serves atomic.Bool // the last call was answered: gRPC may still say that it is connecting, as it tells that later than it sends

	uses   int  // calls and watches; the Pool's
	pooled bool // further calls may use it; the Pool's

	mu       sync.Mutex
	attempt  *attempt // the last one; nil before the first
	closedBy error    // not nil once it is closed
}

func newConn(addr string, opts ClientOptions, options []grpc.DialOption) (*conn, error) {
	c := &conn{addr: addr, opts: opts}
	var err error
	// The address is for dial alone: nobody else resolves it, and no proxy is used.
	c.grpc, err = grpc.NewClient("passthrough:///"+addr, append(slices.Clip(options), grpc.WithContextDialer(c.dial))...)
	if err != nil {
		return nil, c.fail(fmt.Errorf("%w: %w", ErrConnection, err))
	}
	return c, nil
}

// dial makes the connection for gRPC. It remembers the attempt, since gRPC keeps a text of its failure only.
func (c *conn) dial(ctx context.Context, addr string) (net.Conn, error) {
	quiet := max(c.opts.Timeout/2, minKeepAlive)
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: quiet, Interval: quiet, Count: 2},
		Control:         giveUpAfter(c.opts.Timeout),
	}
	socket, err := dialer.DialContext(ctx, "tcp", addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempt = &attempt{Conn: socket, err: err}
	if err != nil {
		c.opts.Logger.Debug().Err(err).Str("peer", addr).Msg("cannot connect")
		return nil, err
	}
	if c.closedBy != nil {
		socket.Close()
		return nil, c.closedBy
	}
	return c.attempt, nil
}

// close ends what is under way for the reason given. The socket is closed first, or gRPC would wait until a peer that
// does not read has taken a farewell.
func (c *conn) close(reason error) {
	c.mu.Lock()
	if c.closedBy == nil {
		c.closedBy = reason
	}
	if c.attempt != nil && c.attempt.Conn != nil {
		c.attempt.Close()
	}
	c.mu.Unlock()
	_ = c.grpc.Close() // fails only if it was closed before
}

func (c *conn) call(ctx context.Context, request parts) ([]byte, error) {
	if err := c.fits(request); err != nil {
		return nil, err
	}
	var answer []byte
	err := c.grpc.Invoke(ctx, callPath, request, &answer)
	c.serves.Store(err == nil)
	if err != nil {
		return nil, c.fail(c.reason(ctx, err))
	}
	return answer, nil
}

// fits refuses a request above the limit.
func (c *conn) fits(request parts) error {
	if n := request.size(); n > c.opts.MaxMessage {
		return c.fail(&SizeError{Size: n, Limit: c.opts.MaxMessage})
	}
	return nil
}

// fail adds the address.
func (c *conn) fail(err error) error { return &Error{Addr: c.addr, Err: err} }

// reason says why gRPC has failed.
func (c *conn) reason(ctx context.Context, err error) error {
	c.mu.Lock()
	last, closedBy := c.attempt, c.closedBy
	c.mu.Unlock()
	code := status.Code(err)
	cut := code == codes.Canceled || code == codes.Internal // a stream that was cut off, Internal is in the middle of an answer
	_, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil && (cut || code == codes.DeadlineExceeded):
		return endOf(ctx)
	case closedBy != nil && (cut || code == codes.Unavailable):
		return closedBy
	case limited && code == codes.DeadlineExceeded: // the peer's clock is a little ahead: the context has not noticed yet
		return fmt.Errorf("%w: %w", ErrTimeout, context.DeadlineExceeded)
	case code == codes.Unavailable && last != nil:
		if known := last.explain(c.opts.TLS != nil); known != nil {
			return known
		}
	}
	return explain(err, c.opts.MaxMessage)
}
