package etcd

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Options selects the etcd cluster and how to use it.
type Options struct {
	// Endpoints are URLs of members, such as https://db1:2379. All must have the same scheme.
	Endpoints []string
	// TLS configures endpoints whose scheme is https.
	TLS TLS
	// User and Password log in. Set both or neither.
	User, Password string
	// Prefix and a slash begin all keys in etcd. Empty means "elasticrun".
	Prefix string
	// TTL is the session's TTL. It is rounded up to whole seconds, the unit of etcd, and to at least 2 s. 0 means 15 s.
	TTL time.Duration
	// DialTimeout bounds Open. 0 means 10 s.
	DialTimeout time.Duration
	// OpTimeout bounds each request. 0 means a third of the TTL, at most 5 s.
	OpTimeout time.Duration
	// Logger receives debug messages about interruptions. Nil logs nothing.
	Logger *zerolog.Logger
}

// TLS names PEM files.
type TLS struct {
	CA        string // the servers' certificate authorities; empty means the machine's
	Cert, Key string // of this client; set both or neither
}

// withDefaults returns the options with defaults for zero values, or an error about an invalid option.
func (o Options) withDefaults() (Options, error) {
	if len(o.Endpoints) == 0 {
		return o, errors.New("etcd: no endpoint is given")
	}
	if (o.User == "") != (o.Password == "") {
		return o, fmt.Errorf("etcd: user %q: give both a user and a password, or neither", o.User)
	}
	o.Prefix = cmp.Or(strings.TrimRight(o.Prefix, "/"), "elasticrun")
	o.TTL = cmp.Or(o.TTL, 15*time.Second)
	o.TTL = max(2*time.Second, (o.TTL + time.Second - 1).Truncate(time.Second))
	o.DialTimeout = cmp.Or(o.DialTimeout, 10*time.Second)
	o.OpTimeout = cmp.Or(o.OpTimeout, min(o.TTL/3, 5*time.Second))
	if o.Logger == nil {
		nop := zerolog.Nop()
		o.Logger = &nop
	}
	return o, nil
}

// config reads the files. It returns nil if the endpoints do not use TLS.
func (f TLS) config(endpoints []string) (*tls.Config, error) {
	secure := strings.HasPrefix(endpoints[0], "https://")
	for _, endpoint := range endpoints {
		if strings.HasPrefix(endpoint, "https://") != secure {
			return nil, fmt.Errorf("etcd: endpoints %q: all must use the same scheme", endpoints)
		}
	}
	if !secure {
		if f != (TLS{}) {
			return nil, fmt.Errorf("etcd: certificates are given, but the endpoint %s is not https: "+
				"set the protocol to https", endpoints[0])
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("etcd: read the CA's certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd: %s holds no certificate in PEM form", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("etcd: certificate %q, key %q: give both, or neither", f.Cert, f.Key)
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("etcd: read certificate %s and key %s: %w", f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
