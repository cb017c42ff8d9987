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
	return &toldCredentials{TransportCredentials: credentials.NewTLS(config), logger: logger}
}

// plainCredentials leave a connection as it is. gRPC gets it bare, or it would keep a buffer for each connection that is idle.
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

// toldCredentials log the handshakes that fail, since gRPC keeps them to itself, and the client often learns only that the
// connection has ended.
type toldCredentials struct {
	credentials.TransportCredentials
	logger zerolog.Logger
	told   atomic.Bool
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *toldCredentials) ServerHandshake(accepted net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(accepted)
	// Who leaves at once wanted to know only whether somebody listens, and it is the server's own end that closes a connection on this side.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		level := zerolog.WarnLevel
		if c.told.Swap(true) {
			level = zerolog.DebugLevel
		}
		c.logger.WithLevel(level).Err(err).Stringer("client", accepted.RemoteAddr()).Msg("refused a connection: no TLS with this client")
	}
	return secured, info, err
}
