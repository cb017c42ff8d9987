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
		return insecure.NewCredentials()
	}
	return &toldCredentials{TransportCredentials: credentials.NewTLS(config), logger: logger}
}

// toldCredentials log the handshakes that fail, since gRPC keeps them to itself, and the client often learns only that the
// connection has ended.
type toldCredentials struct {
	credentials.TransportCredentials
	logger zerolog.Logger
	told   atomic.Bool
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c *toldCredentials) ServerHandshake(socket net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(socket)
	if err != nil && !errors.Is(err, io.EOF) { // who leaves at once wanted to know only whether somebody listens
		level := zerolog.WarnLevel
		if c.told.Swap(true) {
			level = zerolog.DebugLevel
		}
		c.logger.WithLevel(level).Err(err).Stringer("client", socket.RemoteAddr()).Msg("refused a connection: no TLS with this client")
	}
	return secured, info, err
}
