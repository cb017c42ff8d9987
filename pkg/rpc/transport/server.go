package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// handshakeTimeout is the time within which a client must speak gRPC.
const handshakeTimeout = 10 * time.Second

// Handler answers one call. It owns the request. The server sends the parts of the answer one after the other, and
// nobody may change them afterwards. The context ends with the caller's deadline, with the caller, with its
// connection and with Server.Close. Handlers run concurrently and must not panic.
type Handler func(ctx context.Context, request []byte) (answer [][]byte)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// TLS is the configuration for every client, including whether clients must show a certificate. Nil means plain
	// connections.
	TLS *tls.Config

	// MaxMessage is the largest size of a request or an answer in bytes. A call with a larger one fails with
	// [ErrTooLarge]. Zero means 64 MiB; the maximum is 2 GiB.
	MaxMessage int

	// Quiet is how long a client may be silent until it gets a keep-alive ping. Zero means 1 s, gRPC's minimum.
	// Timeout is how long the client may take to answer the ping, or to acknowledge data, before it counts as lost.
	// Zero means 2 s.
	Quiet, Timeout time.Duration

	// Handle answers calls. Nil answers every call with an empty message.
	Handle Handler

	// Watched is called for each watch that a client begins, with the client's hello, which Watched owns. An error
	// refuses the watch, and the client gets up to 1 KiB of its text. Otherwise ended is called at the end of the
	// watch: with nil after the client's goodbye, with ErrConnection if the client was lost, and with ErrClosed if
	// this server ends. Nil refuses all watches.
	Watched func(hello []byte) (ended func(error), err error)

	// Logger logs the first client whose TLS handshake fails at level warn, and further ones at level debug. The zero
	// Logger logs nothing.
	Logger zerolog.Logger
}

// Server answers calls and watches. Use Serve.
type Server struct {
	opts    ServerOptions
	grpc    *grpc.Server
	sockets *sockets
	served  chan struct{} // closed when the listener is closed

	hearing sync.WaitGroup // goroutines that receive messages of clients in watches
	leaving chan struct{}  // closed by Shutdown

	mu     sync.Mutex
	ending bool // Shutdown or Close has begun
	left   bool // leaving is closed

	stopped bool // a Shutdown has ended: every handler has returned
}

// Serve answers the clients that ln accepts until Shutdown or Close. It owns ln.
func Serve(ln net.Listener, opts ServerOptions) *Server {
	opts.MaxMessage = messageLimit(opts.MaxMessage)
	opts.Quiet = cmp.Or(max(opts.Quiet, 0), time.Second)
	opts.Timeout = cmp.Or(max(opts.Timeout, 0), 2*time.Second)
	s := &Server{
		opts:    opts,
		sockets: newSockets(ln, opts.Timeout),
		served:  make(chan struct{}),
		leaving: make(chan struct{}),
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(serverCredentials(opts.TLS, opts.Logger)),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(opts.MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: opts.Quiet, Timeout: opts.Timeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxHeaderListSize(maxHeaders),
	)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: callMethod, Handler: answer}},
		Streams: []grpc.StreamDesc{{
			StreamName: watchMethod, Handler: beWatched,
			ServerStreams: watchStream.ServerStreams, ClientStreams: watchStream.ClientStreams,
		}},
	}, s)
	go func() {
		defer close(s.served)
		if err := s.grpc.Serve(s.sockets); err != nil &&
			!errors.Is(err, grpc.ErrServerStopped) { // ErrServerStopped: Close came first
			opts.Logger.Error().Err(err).Stringer("address", ln.Addr()).Msg("no further connections are accepted")
		}
	}()
	return s
}

// answer is the method for calls.
//
//nolint:revive // gRPC prescribes the parameters
func answer(
	srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	s := srv.(*Server)
	var request []byte
	if err := decode(&request); err != nil {
		return nil, err
	}
	if s.opts.Handle == nil {
		return parts(nil), nil
	}
	out := parts(s.opts.Handle(ctx, request))
	if n := out.size(); n > s.opts.MaxMessage {
		return nil, status.Errorf(codes.OutOfRange, answerTooLarge, n, s.opts.MaxMessage)
	}
	return out, nil
}

// Shutdown accepts no more calls, says goodbye to every client that watches this server, and waits until the handlers
// have returned. It does not wait for clients that have not spoken gRPC yet. If ctx ends first, Shutdown closes
// everything as Close does and returns the context's cause.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave()
	s.sockets.end()
	done := make(chan struct{})
	go func() { // outlives this call only if a handler ignores the end of its context
		defer close(done)
		s.grpc.GracefulStop()
		s.hearing.Wait()
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
	}()
	select {
	case <-done:
		<-s.served
		return nil
	case <-ctx.Done():
		_ = s.Close() // always nil
		return context.Cause(ctx)
	}
}

// Close closes the listener and all connections without a goodbye, and ends the contexts of handlers. It does not
// wait for handlers: a handler that ignores its context continues, and its answer is lost. If a Shutdown waits for
// handlers, Close returns before the connections are closed. The error is always nil.
func (s *Server) Close() error {
	s.mu.Lock()
	left := s.left && !s.stopped
	s.ending = true
	s.mu.Unlock()
	s.sockets.end()
	if left {
		// A Shutdown waits for handlers while it holds gRPC's lock, which Stop needs after it has closed the
		// connections.
		go s.grpc.Stop()
		return nil
	}
	s.grpc.Stop()
	<-s.served
	return nil
}

// leave ends all watches, each with a goodbye.
func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if !s.left {
		s.left = true
		close(s.leaving)
	}
}

func (s *Server) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}
