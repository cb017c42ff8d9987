package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
)

// conns are the client's connections, and what became of the latest attempt at each address: gRPC itself tries again
// and again, and tells nobody why.
type conns struct {
	addresses int // how many there are to try
	// hopeless is called, once, when no attempt can ever succeed.
	onPermanentFailure func()

	mu        sync.Mutex
	open      map[*conn]struct{}
	failed    map[string]error  // by address: how the last attempt failed
	permanent map[string]string // by address: why no attempt can succeed
	reported  bool              // hopeless was called
}

func newConns(addresses int, hopeless func()) *conns {
	return &conns{
		addresses: addresses, onPermanentFailure: hopeless,
		open: make(map[*conn]struct{}), failed: make(map[string]error), permanent: make(map[string]string),
	}
}

// dial is gRPC's dialer.
func (cs *conns) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		cs.record(address, err)
		return nil, err
	}
	c := &conn{Conn: raw, all: cs, address: address}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.open[c] = struct{}{}
	return c, nil
}

// note keeps how an attempt at an address has ended; nil is well.
func (cs *conns) record(address string, err error) {
	cs.mu.Lock()
	delete(cs.failed, address)
	delete(cs.permanent, address)
	if err != nil {
		cs.failed[address] = err
	}
	if why := permanentTLSError(err); why != "" {
		cs.permanent[address] = fmt.Sprintf("%s: %s", address, why)
	}
	call := len(cs.permanent) >= cs.addresses && !cs.reported
	cs.reported = cs.reported || call
	cs.mu.Unlock()
	if call {
		cs.onPermanentFailure()
	}
}

// last returns how the last attempt at some address failed, or nil.
func (cs *conns) lastFailure() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, err := range cs.failed {
		return err
	}
	return nil
}

// refusal returns why no attempt at any address can succeed, or nothing.
func (cs *conns) permanentFailure() string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.permanent) < cs.addresses {
		return ""
	}
	for _, why := range cs.permanent {
		return why
	}
	return ""
}

// drop closes the connections to an address, so that gRPC makes new ones: a connection on which all is silent may stay
// so for minutes after the network has healed, because TCP tries ever more rarely.
func (cs *conns) drop(address net.Addr) {
	if address == nil {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if c.RemoteAddr().String() == address.String() {
			_ = c.Conn.Close()
		}
	}
}

// conn is one connection.
type conn struct {
	net.Conn

	all     *conns
	address string
}

func (c *conn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// handshakes notes how the handshakes of a connection's credentials end.
type recordingCredentials struct {
	credentials.TransportCredentials

	all *conns
}

// ClientHandshake is gRPC's.
func (h *recordingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	address := authority
	if c, ok := raw.(*conn); ok {
		address = c.address
	}
	secure, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		told := fmt.Errorf("TLS handshake: %w", err)
		if errors.Is(err, io.EOF) {
			told = fmt.Errorf("the server ended the TLS handshake, as one does that speaks no TLS: %w", err)
		}
		h.all.record(address, told)
		return nil, nil, err
	}
	return &handshakenConn{Conn: secure, all: h.all, address: address}, info, nil
}

// Clone is gRPC's.
func (h *recordingCredentials) Clone() credentials.TransportCredentials {
	return &recordingCredentials{TransportCredentials: h.TransportCredentials.Clone(), all: h.all}
}

// greeted is a connection after its handshake. Its first byte read shows that the server has taken this client: with
// TLS 1.3 the server judges the client's certificate after the client's part of the handshake.
type handshakenConn struct {
	net.Conn

	all     *conns
	address string
	once    sync.Once
}

func (g *handshakenConn) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.once.Do(func() {
		switch {
		case n > 0 || err == nil:
			g.all.record(g.address, nil)
		case permanentTLSError(err) != "":
			g.all.record(g.address, err)
		case errors.Is(err, net.ErrClosed): // by this side, after a while
			g.all.record(g.address, errors.New("it takes the connection, but says nothing"))
		default:
			g.all.record(g.address, fmt.Errorf("the server ended the connection before its first byte, as one does that wants TLS: %w", err))
		}
	})
	return n, err
}

// hopelessTLS returns why a handshake that has ended so will always do, or nothing.
func permanentTLSError(err error) string {
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &certificate):
		return fmt.Sprintf("its certificate is not trusted: %v", certificate.Err)
	case errors.As(err, &header):
		return "it does not speak TLS: set the protocol to http"
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert of TLS
		return fmt.Sprintf("it ended the TLS handshake: %v: see the client's certificate and key", remote.Err)
	}
	return ""
}

// connectParams make gRPC connect again soon: its own wait grows to two minutes.
func connectParams(timeout time.Duration) grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: time.Second},
		MinConnectTimeout: timeout,
	}
}
