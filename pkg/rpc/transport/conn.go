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

	"github.com/elasticrun/elasticrun/internal/tcplimit"
)

// minKeepAlive is the smallest time-out that kernels accept.
const minKeepAlive = time.Second

// conn is a connection to one peer. gRPC dials it at its first use, and again after it has broken.
type conn struct {
	addr string
	opts ClientOptions
	grpc *grpc.ClientConn

	// serves means that the last call was answered. gRPC can still report "connecting", because it updates its state
	// after it sends.
	serves atomic.Bool

	uses   int  // number of calls and watches; owned by the Pool
	pooled bool // further calls may use it; owned by the Pool

	mu       sync.Mutex
	attempt  *attempt // the last attempt, or nil
	closedBy error    // set once the connection is closed
}

func newConn(addr string, opts ClientOptions, options []grpc.DialOption) (*conn, error) {
	c := &conn{addr: addr, opts: opts}
	var err error
	// dial gets the address itself: nothing else resolves it, and no proxy is used.
	c.grpc, err = grpc.NewClient("passthrough:///"+addr, append(slices.Clip(options), grpc.WithContextDialer(c.dial))...)
	if err != nil {
		return nil, c.fail(fmt.Errorf("%w: %w", ErrConnection, err))
	}
	return c, nil
}

// dial connects for gRPC. It stores the attempt, because gRPC keeps only the text of the error.
func (c *conn) dial(ctx context.Context, addr string) (net.Conn, error) {
	quiet := max(c.opts.Timeout/2, minKeepAlive)
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: quiet, Interval: quiet, Count: 2},
		Control:         tcplimit.Control(c.opts.Timeout),
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

// close ends the calls under way with the given error. It closes the socket first, because gRPC would otherwise wait
// for a peer that does not read.
func (c *conn) close(reason error) {
	c.mu.Lock()
	if c.closedBy == nil {
		c.closedBy = reason
	}
	if c.attempt != nil && c.attempt.Conn != nil {
		c.attempt.Close()
	}
	c.mu.Unlock()
	_ = c.grpc.Close() // returns an error only if it was closed before
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

// fail adds the address to an error.
func (c *conn) fail(err error) error { return &Error{Addr: c.addr, Err: err} }

// reason returns why gRPC has failed.
func (c *conn) reason(ctx context.Context, err error) error {
	c.mu.Lock()
	last, closedBy := c.attempt, c.closedBy
	c.mu.Unlock()
	code := status.Code(err)
	cut := code == codes.Canceled ||
		code == codes.Internal // the connection broke; Internal means in the middle of an answer
	_, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil && (cut || code == codes.DeadlineExceeded):
		return endOf(ctx)
	case closedBy != nil && (cut || code == codes.Unavailable):
		return closedBy
	case limited && code == codes.DeadlineExceeded: // the peer's clock is slightly ahead of the context
		return fmt.Errorf("%w: %w", ErrTimeout, context.DeadlineExceeded)
	case code == codes.Unavailable && last != nil:
		if known := last.explain(c.opts.TLS != nil); known != nil {
			return known
		}
	}
	return explain(err, c.opts.MaxMessage)
}
