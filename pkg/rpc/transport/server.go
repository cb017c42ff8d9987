package transport

import (
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

// handshakeTimeout is how long a client may take until it speaks gRPC.
const handshakeTimeout = 10 * time.Second

// Handler answers one call. The request is the handler's to keep. The parts of the answer are sent one after the other, as they
// are: nobody may change them any more. The context ends with the caller's deadline, with the caller, with its connection and with
// Server.Close. Handlers run concurrently, and must not panic.
type Handler func(ctx context.Context, request []byte) (answer [][]byte)

// ServerOptions are the options of a Server.
type ServerOptions struct {
	// TLS is spoken with every client; nil means plain connections. Whether clients must show a certificate is said in it.
	TLS *tls.Config

	// MaxMessage is the size of a request or an answer in bytes; a call with a larger one fails with [ErrTooLarge]. Zero means
	// 64 MiB; 2 GiB is the most.
	MaxMessage int

	// Quiet is for how long a client may say nothing until it is asked for a sign of life, and Timeout how long it may take for
	// that, or for taking what was sent to it; then it is lost. Zero means 1 s, the least that gRPC can do, and 2 s.
	Quiet, Timeout time.Duration

	// Handle answers calls. Nil means that they are answered with nothing.
	Handle Handler

	// Watched is told of each watch that a client begins, with the hello of that client, which is Watched's to keep. An error refuses
	// the watch, and its text, up to 1 KiB of it, is told to the client. Else ended is called when the watch has ended: with nil if the
	// client has said goodbye, with ErrConnection if it was lost, and with ErrClosed if this server ends. Nil means that watches are refused.
	Watched func(hello []byte) (ended func(error), err error)

	// Logger gets a line at level warn for the first client whose TLS handshake fails, and one at level debug for further ones. The
	// zero Logger is silent.
	Logger zerolog.Logger
}

// Server answers calls and watches. Use Serve.
type Server struct {
	opts    ServerOptions
	grpc    *grpc.Server
	sockets *sockets
	served  chan struct{} // closed when the listener is

	hearing sync.WaitGroup // for words of clients, in watches
	leaving chan struct{}  // closed by Shutdown

	mu     sync.Mutex
	ending bool // by Shutdown or by Close
	left   bool // leaving is closed

	stopped bool // a Shutdown has been waited for
}

// Serve answers the clients that ln accepts until Shutdown or Close, and owns ln.
func Serve(ln net.Listener, opts ServerOptions) *Server {
	opts.MaxMessage = messageLimit(opts.MaxMessage)
	if opts.Quiet <= 0 {
		opts.Quiet = time.Second
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 2 * time.Second
	}
	s := &Server{opts: opts, sockets: newSockets(ln, opts.Timeout), served: make(chan struct{}), leaving: make(chan struct{})}
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
		if err := s.grpc.Serve(s.sockets); err != nil && !errors.Is(err, grpc.ErrServerStopped) { // which is a Close that was quicker
			opts.Logger.Error().Err(err).Stringer("address", ln.Addr()).Msg("no further connections are accepted")
		}
	}()
	return s
}

// answer is the call's method.
func answer(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the form is gRPC's
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

// Shutdown accepts no more calls, says goodbye to whoever watches this server, and waits until the handlers have returned. Clients that have
// not spoken gRPC yet are not waited for. When ctx ends first, the rest is as with Close, and the context's cause is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.leave()
	s.sockets.end()
	done := make(chan struct{})
	go func() { // outlives this call only where a handler ignores the end of its context
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

// Close closes the listener and all connections, without a goodbye, and ends the contexts of handlers. It waits for no handler:
// one that ignores its context goes on, and its answer is lost. While a Shutdown waits for handlers, Close has only begun that when it
// returns. The error is always nil.
func (s *Server) Close() error {
	s.mu.Lock()
	left := s.left && !s.stopped
	s.ending = true
	s.mu.Unlock()
	s.sockets.end()
	if left {
		// A Shutdown waits for handlers with gRPC's lock held, which Stop takes again when it has closed the connections.
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
