package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for tests.
type Authority struct {
	// File is the PEM file of the authority's own certificate.
	File string

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with this name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(t, template)
	writePEM(t, a.File, "CERTIFICATE", a.cert.Raw)
	return a
}

// Issue returns the files of a certificate for servers and clients at hosts, which are names and addresses, and of its
// key. Without hosts it is for the loopback addresses and localhost.
func (a *Authority) Issue(t testing.TB, name string, hosts ...string) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.IssueAt(t, cert, key, name, func(c *x509.Certificate) {
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, host)
			}
		}
		if len(hosts) == 0 {
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
			c.DNSNames = []string{"localhost"}
		}
	})
	return cert, key
}

// Pair returns a certificate for local servers, with its key.
func (a *Authority) Pair(t testing.TB, name string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// IssueAt writes a certificate and its key to these files. change changes what is signed.
func (a *Authority) IssueAt(t testing.TB, certFile, keyFile, name string, change func(*x509.Certificate)) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(template)
	cert, key := a.sign(t, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, certFile, "CERTIFICATE", cert.Raw)
	writePEM(t, keyFile, "PRIVATE KEY", der)
}

// TrustAt writes the certificates of authorities to a file.
func TrustAt(t testing.TB, file string, authorities ...*Authority) {
	t.Helper()
	var text []byte
	for _, a := range authorities {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	replace(t, file, text)
}

// sign returns a certificate with a new key. The first one is the authority's own.
func (a *Authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	replace(t, path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// replace replaces a file at once, by one with another inode.
func replace(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
