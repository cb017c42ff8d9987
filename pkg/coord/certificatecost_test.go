package coord

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
)

// cutConn sends only the next n bytes after cut was set.
type cutConn struct {
	net.Conn
	cut bool
	n   int // how many bytes it may still send
}

func (c *cutConn) Write(b []byte) (int, error) {
	send := b
	if c.cut {
		send = b[:min(len(b), c.n)]
		c.n -= len(send)
	}
	if _, err := c.Conn.Write(send); err != nil {
		return 0, err
	}
	return len(b), nil
}

// TestCostOfCertificates measures the cost of a connection for a store that requires a certificate and gets most of
// one.
func TestCostOfCertificates(t *testing.T) {
	ours := testenv.NewAuthority(t, "ours")
	cert, key := ours.Issue(t, "store")
	const most = 64 << 20
	s, addr := startServer(t, ServerOptions{
		HandshakeTimeout: time.Minute, MaxMemory: most,
		Certificates: site(t, certfiles.Files{Cert: cert, Key: key, CA: ours.File}),
	})
	const n = 100
	open := func() net.Conn {
		raw := connect(t, addr)
		a := &attempt{opts: &DialOptions{Addr: addr}}
		cut := &cutConn{Conn: raw, n: maxRecord}
		config, _ := clientConfig(a.opts)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cut.cut = true
			pair, err := tls.LoadX509KeyPair(cert, key)
			pair.Certificate[0] = make([]byte, certificateBytes+1<<10)
			return &pair, err
		}
		below := &preambleConn{Conn: cut, unsent: appendPreamble(nil), check: func() (byte, error) {
			if err := a.readPreamble(raw); err != nil {
				return 0, err
			}
			return a.awaitTurn(t.Context(), raw)
		}}
		if err := tls.Client(below, config).Handshake(); err != nil {
			t.Fatal(err)
		}
		return raw
	}
	open()
	before := memory()
	for range n {
		open()
	}
	await(t, func() bool { return (memory()-before)/n > pendingSize }) // the store has read all data that arrived
	each := (memory() - before) / n
	t.Logf("%d bytes", each)
	if each > pendingCertificateSize || s.Limits().Pending*int(each) > most/2 {
		t.Errorf("a connection costs %d bytes, and the store allows %d", each, s.Limits().Pending)
	}
}
