package certfiles

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/plainerr"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// Files names PEM files. An empty name means that the file is not given.
type Files struct {
	// Cert holds this side's certificate, perhaps followed by intermediate certificates. Key holds its key. Set both or
	// neither.
	Cert string `json:",omitempty"`
	Key  string `json:",omitempty"`
	// CA holds certificate authorities: one of them must have signed the peer's certificate.
	CA string `json:",omitempty"`
}

// Given reports whether any file is given.
func (f Files) Given() bool { return f != Files{} }

// Mutual reports whether both sides prove their identity if both have such files: each side shows a certificate and
// verifies the other's.
func (f Files) Mutual() bool { return f.Cert != "" && f.Key != "" && f.CA != "" }

// Absolute returns the absolute names, for a process that may have another working directory.
func (f Files) Absolute() (Files, error) {
	for _, name := range []*string{&f.Cert, &f.Key, &f.CA} {
		if *name == "" {
			continue
		}
		var err error
		if *name, err = filepath.Abs(*name); err != nil {
			return Files{}, err
		}
	}
	return f, nil
}

// Content is the content of the files at one time.
type Content struct {
	// Pair is this side's certificate and key; nil if they are not given.
	Pair *tls.Certificate
	// CA verifies the peer's certificate; nil if it is not given.
	CA *x509.CertPool
}

// load reads the files. It refuses a certificate that is not valid at this time.
func (f Files) load(now time.Time) (*Content, error) {
	c := &Content{}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("certificate %s, key %s: give both or neither",
			printable.Quote(f.Cert), printable.Quote(f.Key))
	}
	var err error
	if f.Cert != "" {
		if c.Pair, err = loadPair(f.Cert, f.Key, now); err != nil {
			return nil, err
		}
	}
	if f.CA != "" {
		if c.CA, err = loadCA(f.CA, now); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func loadPair(cert, key string, now time.Time) (*tls.Certificate, error) {
	certText, err := readFile("certificate", cert, false)
	if err != nil {
		return nil, err
	}
	keyText, err := readFile("key", key, true)
	if err != nil {
		return nil, err
	}
	switch block, _ := pem.Decode(keyText); {
	case block == nil:
		return nil, fmt.Errorf("the key %s holds no key in PEM form", printable.Quote(key))
	case isEncrypted(block):
		return nil, fmt.Errorf("the key %s needs a passphrase, for which elasticrun does not ask: openssl pkey -in %[1]s "+
			"-out FILE writes the key without one", printable.Quote(key))
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "does not match"):
		return nil, fmt.Errorf("the key %s does not belong to the certificate %s",
			printable.Quote(key), printable.Quote(cert))
	default:
		text := strings.TrimPrefix(plainerr.Text(err), "tls: ")
		return nil, fmt.Errorf("the certificate %s and the key %s: %s", printable.Quote(cert), printable.Quote(key), text)
	}
	if problem := Outdated(pair.Leaf, now); problem != "" {
		return nil, fmt.Errorf("the certificate %s %s", printable.Quote(cert), problem)
	}
	return &pair, nil
}

// isEncrypted reports whether a block of a key file is encrypted, in PKCS #8 or in OpenSSL's older form.
func isEncrypted(block *pem.Block) bool {
	return block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED")
}

// loadCA reads certificates of authorities. At least one of them must be valid now.
func loadCA(path string, now time.Time) (*x509.CertPool, error) {
	text, err := readFile("CA", path, false)
	if err != nil {
		return nil, err
	}
	pool, problem := x509.NewCertPool(), "holds no certificate in PEM form"
	valid := false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("the CA %s: %s", printable.Quote(path), strings.TrimPrefix(err.Error(), "x509: "))
		}
		pool.AddCert(cert)
		outdated := Outdated(cert, now)
		if valid = valid || outdated == ""; outdated != "" {
			problem = outdated
		}
	}
	if !valid {
		return nil, fmt.Errorf("the CA %s %s", printable.Quote(path), problem)
	}
	return pool, nil
}

// Outdated explains to people why a certificate is not valid at this time. It returns "" if the certificate is valid.
func Outdated(cert *x509.Certificate, now time.Time) string {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Sprintf("expired at %s: issue a new one", cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Sprintf("is not valid before %s: check this machine's clock",
			cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return ""
}
