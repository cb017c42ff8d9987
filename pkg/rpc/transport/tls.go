package transport

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"
)

// LoadTLS returns the TLS configurations of a member of a group. It reads the PEM files of the member's certificate
// (intermediate certificates may follow it), of its key, and of the CA that all members share. Both ends show a
// certificate and speak TLS 1.3. serverName is the name in each peer's certificate; empty means the host of the
// peer's address. LoadTLS returns an error for a file that it cannot read, a key of another certificate, and a
// certificate that is expired, that the CA did not issue, or that is not for both ends.
func LoadTLS(cert, key, ca, serverName string) (server, client *tls.Config, err error) {
	return loadTLS(cert, key, ca, serverName, time.Now())
}

func loadTLS(cert, key, ca, serverName string, now time.Time) (server, client *tls.Config, err error) {
	roots, err := loadCA(ca, now)
	if err != nil {
		return nil, nil, err
	}
	pair, err := loadPair(cert, key)
	if err != nil {
		return nil, nil, err
	}
	if err := checkCertificate(pair, roots, now); err != nil {
		return nil, nil, fmt.Errorf("certificate %s, with the CA %s: %w", cert, ca, err)
	}
	base := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server, client = base.Clone(), base.Clone()
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, roots
	client.RootCAs, client.ServerName = roots, serverName
	return server, client, nil
}

// loadCA reads the trusted certificates.
func loadCA(path string, now time.Time) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	pool, count := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = checkTime(cert, now)
		}
		if err != nil {
			return nil, fmt.Errorf("CA %s: %w", path, err)
		}
		pool.AddCert(cert)
		count++
	}
	if count == 0 {
		return nil, fmt.Errorf("CA %s: it holds no certificate in PEM", path)
	}
	return pool, nil
}

// loadPair reads a certificate and its key.
func loadPair(cert, key string) (tls.Certificate, error) {
	certText, err := os.ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate: %w", err)
	}
	keyText, err := os.ReadFile(key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read key: %w", err)
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s and key %s: %w", cert, key, err)
	}
	return pair, nil
}

// checkCertificate checks that peers that trust roots accept the certificate at both ends of a connection.
func checkCertificate(pair tls.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(cert)
	}
	if err := checkTime(pair.Leaf, now); err != nil {
		return err
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
		})
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage {
			return errors.New("it must be for servers and for clients (extended key usage serverAuth and clientAuth)")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkTime(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("it expired at %s; issue a new one", cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("it is not valid before %s; check this machine's clock", cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}
