package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// authority is a CA of a test and its files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "group"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write(t, "ca", "CERTIFICATE", der)
	a.issue(t, "member", func(*x509.Certificate) {})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

func (a *authority) write(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue writes NAME.pem and NAME-key.pem.
func (a *authority) issue(t testing.TB, name string, change func(*x509.Certificate)) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"member.group"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   a.cert.NotBefore, NotAfter: a.cert.NotAfter,
	}
	change(template)
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name, "CERTIFICATE", der)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+"-key", "PRIVATE KEY", keyDER)
}

func (a *authority) load(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	server, client, err := LoadTLS(a.file("member"), a.file("member-key"), a.file("ca"), "")
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

// lines receives the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestTLS(t *testing.T) {
	ca := newCA(t)
	server, client := ca.load(t)
	logged := make(lines, 8)
	_, addr := serve(t, ServerOptions{Handle: echo, TLS: server, Logger: zerolog.New(logged)})
	checkEcho(t, newPool(t, ClientOptions{TLS: client}), addr)

	t.Run("server name", func(t *testing.T) {
		for name, want := range map[string]error{"member.group": nil, "other.group": ErrConnection} {
			_, named, err := LoadTLS(ca.file("member"), ca.file("member-key"), ca.file("ca"), name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := newPool(t, ClientOptions{TLS: named}).Call(within(t, testTimeout), addr); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
	})
	t.Run("client without certificate", func(t *testing.T) {
		bare := client.Clone()
		bare.Certificates = nil
		_, err := newPool(t, ClientOptions{TLS: bare}).Call(within(t, testTimeout), addr)
		if !errors.Is(err, ErrConnection) {
			t.Errorf("got %v", err)
		}
		for line := range logged { // the failed handshake with another server name is logged too
			if strings.Contains(line, "didn't provide a certificate") {
				break
			}
		}
	})
}

func TestLoadTLSRefuses(t *testing.T) {
	ca := newCA(t)
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	ca.cert.NotBefore, ca.cert.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	renew := func(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		ca.write(t, name, "CERTIFICATE", der)
	}
	renew("ca", ca.cert, ca.key)
	stale := *ca.cert
	stale.NotAfter = now.Add(-time.Minute)
	renew("stale-ca", &stale, ca.key)
	other := newCA(t)
	other.cert.NotBefore, other.cert.NotAfter = ca.cert.NotBefore, ca.cert.NotAfter
	renew("other-ca", other.cert, other.key)
	ca.issue(t, "good", func(*x509.Certificate) {})
	ca.issue(t, "expired", func(c *x509.Certificate) { c.NotAfter = now.Add(-30 * time.Minute) })
	ca.issue(t, "early", func(c *x509.Certificate) { c.NotBefore = now.Add(30 * time.Minute) })
	ca.issue(t, "half", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] })
	ca.write(t, "text", "NOTE", []byte("no certificate"))
	for _, tc := range []struct {
		name          string
		cert, key, ca string
		want          []string // parts of the error, which is one line
	}{
		{name: "good", cert: "good", key: "good-key", ca: "ca"},
		{name: "no certificate", cert: "none", key: "good-key", ca: "ca", want: []string{"none.pem", "no such file"}},
		{name: "no key", cert: "good", key: "none", ca: "ca", want: []string{"none.pem", "no such file"}},
		{name: "no CA", cert: "good", key: "good-key", ca: "none", want: []string{"none.pem", "no such file"}},
		{name: "certificate is none", cert: "text", key: "good-key", ca: "ca", want: []string{"text.pem"}},
		{name: "key is none", cert: "good", key: "text", ca: "ca", want: []string{"text.pem"}},
		{name: "CA is none", cert: "good", key: "good-key", ca: "text", want: []string{"text.pem", "holds no certificate"}},
		{name: "key of another", cert: "good", key: "early-key", ca: "ca", want: []string{"early-key.pem", "private key does not match"}},
		{name: "expired", cert: "expired", key: "expired-key", ca: "ca", want: []string{"expired.pem", "it expired at 2031-05-06T06:38:09Z"}},
		{name: "expired CA", cert: "good", key: "good-key", ca: "stale-ca", want: []string{"stale-ca.pem", "it expired at 2031-05-06T07:07:09Z"}},
		{name: "not yet", cert: "early", key: "early-key", ca: "ca", want: []string{"early.pem", "not valid before 2031-05-06T07:38:09Z"}},
		{name: "of another CA", cert: "good", key: "good-key", ca: "other-ca", want: []string{"good.pem", "other-ca.pem", "unknown authority"}},
		{name: "for servers only", cert: "half", key: "half-key", ca: "ca", want: []string{"half.pem", "clientAuth"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := loadTLS(ca.file(tc.cert), ca.file(tc.key), ca.file(tc.ca), "", now)
			if (err == nil) != (tc.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %q, want %q in it", err, part)
				}
			}
		})
	}
}
