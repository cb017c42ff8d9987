package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

func clientCredentials(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config)
}

func serverCredentials(config *tls.Config, logger zerolog.Logger) credentials.TransportCredentials {
	if config == nil {
		return plainCredentials{insecure.NewCredentials()}
	}
	return &loggingCredentials{TransportCredentials: credentials.NewTLS(config), logger: logger}
}

// plainCredentials leaves a connection unchanged. gRPC gets the bare connection, because it keeps a buffer for each
// wrapped one.
type plainCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c plainCredentials) ServerHandshake(accepted net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if s, ok := accepted.(*socket); ok {
		accepted = s.Conn
	}
	return c.TransportCredentials.ServerHandshake(accepted)
}

// loggingCredentials logs failed TLS handshakes. gRPC does not report them, and the client often sees only a closed
// connection.
type loggingCredentials struct {
	credentials.TransportCredentials
	logger zerolog.Logger
	logged atomic.Bool
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *loggingCredentials) ServerHandshake(accepted net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(accepted)
	// EOF: the client only probes whether this server listens. ErrClosed: this server has ended and closed the
	// connection.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		level := zerolog.WarnLevel
		if c.logged.Swap(true) {
			level = zerolog.DebugLevel
		}
		c.logger.WithLevel(level).
			Err(err).
			Stringer("client", accepted.RemoteAddr()).
			Msg("refused a connection: no TLS with this client")
	}
	return secured, info, err
}
