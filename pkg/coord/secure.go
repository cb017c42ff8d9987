package coord

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
)

// Every connection is TLS 1.3 (RFC 8446) after the preambles. Without certificates of the site, the server's
// certificate proves nothing: each server makes its own in memory, and clients accept any. The shared secret
// authenticates both sides; its proofs are bound to the connection's keys. Without both, TLS protects only against
// eavesdroppers.

// baseConfig is the common configuration of both sides. P-256 alone is the fastest key exchange here, and FIPS 140
// allows it.
func baseConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.CurveP256},
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
}

// serverConfig returns the configuration of a server with a new certificate.
func serverConfig() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for TLS: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for TLS: %w", err)
	}
	config := baseConfig()
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return config, nil
}

// clientConfig returns the configuration of a client, and whether it verifies the store's certificate.
func clientConfig(opts *DialOptions) (config *tls.Config, verifies bool) {
	config = baseConfig()
	config.InsecureSkipVerify = true
	if opts.Certificates != nil {
		verifies = siteClientConfig(config, opts)
	}
	return config, verifies
}

// secureConn is a TLS connection.
type secureConn struct {
	*tls.Conn
	nc net.Conn
}

// Close closes the network connection at once. It sends no alert, which could block: Close is called with locks held,
// and the agents' protocol has last frames of its own.
func (c *secureConn) Close() error { return c.nc.Close() }

// binding returns 32 bytes that only the two ends of this connection can have (RFC 8446, section 7.5).
func (c *secureConn) binding() ([]byte, error) {
	state := c.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-elasticrun-agents", nil, 32)
}

// preambleConn is the client's side of a connection, below TLS. It sends the preamble together with the first data.
type preambleConn struct {
	net.Conn
	unsent []byte                         // the preamble until it has been sent
	check  func() (first byte, err error) // reads the store's preamble and the byte after it; nil when that is done
}

func (c *preambleConn) Write(b []byte) (int, error) {
	if c.unsent == nil {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(append(c.unsent, b...))
	n, c.unsent = max(0, n-len(c.unsent)), nil
	return n, err
}

func (c *preambleConn) Read(b []byte) (int, error) {
	if c.check == nil {
		return c.Conn.Read(b)
	}
	first, err := c.check()
	if err != nil {
		return 0, err
	}
	c.check = nil
	b[0] = first // crypto/tls never reads into an empty slice
	return 1, nil
}
