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

	"github.com/elasticrun/elasticrun/internal/plainerr"
)

// conns tracks the client's connections and the result of the latest attempt at each address. gRPC retries forever and
// does not report why an attempt failed.
type conns struct {
	addresses int // the number of endpoints
	// onPermanentFailure is called once, when no attempt can ever succeed.
	onPermanentFailure func()

	mu        sync.Mutex
	open      map[*conn]struct{}
	failed    map[string]error  // by address: how the last attempt failed
	permanent map[string]string // by address: why no attempt can succeed
	reported  bool              // onPermanentFailure was called
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
		cs.record(address, &inWords{plainerr.Text(err), err})
		return nil, err
	}
	c := &conn{Conn: raw, all: cs, address: address}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.open[c] = struct{}{}
	return c, nil
}

// record stores the result of an attempt at an address; nil means success.
func (cs *conns) record(address string, err error) {
	cs.mu.Lock()
	delete(cs.failed, address)
	delete(cs.permanent, address)
	if err != nil {
		cs.failed[address] = err
	}
	if reason := permanentTLSError(err); reason != "" {
		cs.permanent[address] = fmt.Sprintf("%s: %s", address, reason)
	}
	report := len(cs.permanent) >= cs.addresses && !cs.reported
	cs.reported = cs.reported || report
	cs.mu.Unlock()
	if report {
		cs.onPermanentFailure()
	}
}

// lastFailure returns how the last attempt at some address failed, or nil.
func (cs *conns) lastFailure() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, err := range cs.failed {
		return err
	}
	return nil
}

// permanentFailure returns why no attempt at any address can succeed, or "".
func (cs *conns) permanentFailure() string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.permanent) < cs.addresses {
		return ""
	}
	for _, reason := range cs.permanent {
		return reason
	}
	return ""
}

// drop closes the connections to an address so that gRPC makes new ones. A silent connection may stay silent for
// minutes after the network has healed, because TCP retransmits ever more rarely.
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

// conn is a connection that removes itself from conns when it is closed.
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

// recordingCredentials records the results of the handshakes of its credentials.
type recordingCredentials struct {
	credentials.TransportCredentials

	all *conns
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *recordingCredentials) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	address := authority
	if c, ok := raw.(*conn); ok {
		address = c.address
	}
	secure, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		failure := &inWords{"TLS handshake: " + plainerr.Text(err), err}
		if errors.Is(err, io.EOF) {
			failure.text = "the server ended the TLS handshake; perhaps it does not speak TLS"
		}
		h.all.record(address, failure)
		return nil, nil, err
	}
	return &handshakenConn{Conn: secure, all: h.all, address: address}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h *recordingCredentials) Clone() credentials.TransportCredentials {
	return &recordingCredentials{TransportCredentials: h.TransportCredentials.Clone(), all: h.all}
}

// A server's first frame of HTTP/2 has the type SETTINGS (RFC 9113, section 3.4) in this byte.
const (
	http2Type     = 3
	http2Settings = 4
)

// handshakenConn is a connection after its handshake. Its first read shows whether the server has accepted the client:
// with TLS 1.3 the server checks the client's certificate after the client has finished its handshake.
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
		case n > http2Type && p[http2Type] != http2Settings:
			g.all.record(g.address, errors.New("another server than etcd has this port: it does not speak HTTP/2"))
		case n > 0 || err == nil:
			g.all.record(g.address, nil)
		case permanentTLSError(err) != "":
			g.all.record(g.address, err)
		case errors.Is(err, net.ErrClosed): // closed locally, after a timeout
			g.all.record(g.address, errors.New("it accepts the connection, but sends nothing"))
		default:
			const closed = "the server closed the connection before its first byte; perhaps it requires TLS"
			g.all.record(g.address, &inWords{closed, err})
		}
	})
	return n, err
}

// permanentTLSError returns why a handshake that has failed with err will always fail, or "".
func permanentTLSError(err error) string {
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &certificate):
		return fmt.Sprintf("its certificate is not trusted: %v", certificate.Err)
	case errors.As(err, &header):
		return "it does not speak TLS: set the protocol to http"
	case errors.As(err, &remote) && remote.Op == "remote error": // a TLS alert
		return fmt.Sprintf("it ended the TLS handshake: %v: check the client's certificate and key", remote.Err)
	}
	return ""
}

// connectParams limits gRPC's delay between connection attempts, which by default grows to two minutes.
func connectParams(timeout time.Duration) grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: time.Second,
		},
		MinConnectTimeout: timeout,
	}
}
