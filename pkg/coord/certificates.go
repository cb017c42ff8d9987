package coord

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
)

// Certificates of a site
//
// A side with a certificate of its own shows it. A side with a CA requires a certificate of that CA from its peer: the
// client requires one with the store's name, and the store accepts any name. The secret, if there is one, is proved as
// without certificates. On both sides each handshake uses the present content of the files.

// siteServerConfig returns a function that returns a server's configuration for one handshake. A server without a
// certificate of the site shows a certificate that it has made itself.
func siteServerConfig(site *certfiles.Set) func() (*tls.Config, error) {
	var mu sync.Mutex
	var last *certfiles.Content // the content that config was made from
	var config *tls.Config      // shared by handshakes, since each connection keeps it
	own := sync.OnceValues(serverConfig)
	return func() (*tls.Config, error) {
		content := site.Content()
		mu.Lock()
		defer mu.Unlock()
		if content == last {
			return config, nil
		}
		next := baseConfig()
		if content.Pair != nil {
			next.Certificates = []tls.Certificate{*content.Pair}
		} else if with, err := own(); err != nil {
			return nil, err
		} else {
			next.Certificates = with.Certificates
		}
		if content.CA != nil {
			next.ClientAuth, next.ClientCAs = tls.RequireAndVerifyClientCert, content.CA
		}
		last, config = content, next
		return config, nil
	}
}

// siteClientConfig completes the configuration of a client for one handshake. It reports whether the handshake verifies
// the store's certificate.
func siteClientConfig(config *tls.Config, opts *DialOptions) (verifies bool) {
	content := opts.Certificates.Content()
	if content.Pair != nil {
		// The client also shows its certificate to a store of another CA, which then reports the mismatch.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return content.Pair, nil }
	}
	if content.CA == nil {
		return false
	}
	names := opts.serverNames()
	config.ServerName = names[0]
	if opts.AnyName {
		names = nil
	}
	config.VerifyConnection = func(s tls.ConnectionState) error {
		return verifyStore(s.PeerCertificates, content.CA, names)
	}
	return true
}

// verifyStore verifies a store's certificate chain, whose first certificate is the store's own, as crypto/tls does. But
// it accepts a certificate for any of several names; without names it accepts every name. Its error is that of
// crypto/tls.
func verifyStore(chain []*x509.Certificate, ca *x509.CertPool, names []string) error {
	if len(chain) == 0 { // impossible in TLS 1.3
		return errors.New("the store has shown no certificate")
	}
	options := x509.VerifyOptions{Roots: ca, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(options)
	has := func(name string) bool { return chain[0].VerifyHostname(name) == nil }
	if err == nil && len(names) > 0 && !slices.ContainsFunc(names, has) {
		err = chain[0].VerifyHostname(names[0])
	}
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// serverNames returns the accepted names, at least one. The store's certificate must have one of them.
func (o *DialOptions) serverNames() []string {
	names := slices.Clone(o.ServerNames)
	if len(names) == 0 {
		host, _, err := net.SplitHostPort(o.Addr)
		if err != nil {
			host = o.Addr
		}
		names = []string{host}
	}
	for i, name := range names {
		if addr, err := netip.ParseAddr(name); err == nil {
			names[i] = addr.WithZone("").Unmap().String()
		} else {
			names[i] = cmp.Or(strings.TrimSuffix(name, "."), "localhost")
		}
	}
	return names
}

// certificateProblem explains to people why a handshake has not accepted the peer's certificate. It returns "" if the
// handshake failed for another reason.
func certificateProblem(err error) string {
	failed, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok || len(failed.UnverifiedCertificates) == 0 {
		return ""
	}
	leaf := failed.UnverifiedCertificates[0]
	if selfMade(leaf) {
		return "it was given no certificate and has made one itself: give it one of the CA"
	}
	if err, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("its certificate is for %s, not for %s: give it one for %[2]s", namesOf(leaf), err.Host)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Sprintf("no authority of the CA's file has signed its certificate (%s)", describeName(leaf))
	}
	if err, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		outdated := ""
		if err.Cert != nil {
			outdated = certfiles.Outdated(err.Cert, time.Now())
		}
		switch {
		case err.Reason == x509.Expired && outdated != "" && err.Cert.IsCA:
			return "the CA's certificate " + outdated
		case err.Reason == x509.Expired && outdated != "":
			return "its certificate " + outdated
		case err.Reason == x509.IncompatibleUsage:
			return "its certificate is not for this end of a connection: issue one for servers and clients " +
				"(extended key usage serverAuth and clientAuth)"
		}
	}
	return "its certificate cannot be verified: " + printable(failed.Err.Error())
}

// selfMade reports whether a store of elasticrun has made the certificate itself; see serverConfig.
func selfMade(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && len(c.Subject.Names) == 0
}

// namesOf lists the names of a server's certificate.
func namesOf(c *x509.Certificate) string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "…")
	}
	if len(names) == 0 {
		return "no host (it has no subject alternative name)"
	}
	return printable(strings.Join(names, ", "))
}

// describeName returns the name of a certificate's subject for people.
func describeName(c *x509.Certificate) string {
	return printable(cmp.Or(c.Subject.String(), namesOf(c)))
}

// certificateAlert returns the peer's alert about this side's certificate, in TLS's words; "" if err is something else.
// In TLS 1.3 a server sends it after the client's handshake has ended, so the client's first read returns it.
func certificateAlert(err error) string {
	remote, ok := errors.AsType[*net.OpError](err)
	if !ok || remote.Op != "remote error" || remote.Err == nil {
		return ""
	}
	text := strings.TrimPrefix(remote.Err.Error(), "tls: ")
	if !strings.Contains(text, "certificate") {
		return ""
	}
	return text
}

// rejected returns the error for a store that has sent an alert about this client's certificate.
func (a *attempt) rejected(alert string) error {
	message := "it does not accept this agent's certificate (" + alert + "): the store's log says why"
	if a.opts.Certificates.Files().Cert == "" {
		message = "it demands a certificate and this side has none: give ssl_cert and ssl_cert_key in --rdzv-conf"
	}
	if !a.believes() {
		return a.dialError(ObstacleRejected, message, nil)
	}
	return a.refused(ReasonCertificate, message)
}

// believes reports whether the client accepts a refusal as final. It does if the store has proved its identity, or if
// the client requires no proof.
func (a *attempt) believes() bool {
	if a.proved || a.verified {
		return true
	}
	return len(a.opts.Secret) == 0 && a.opts.Certificates.Files().CA == ""
}

// refusesCertificate returns why a server's TLS handshake has failed because of a certificate, or nil.
func refusesCertificate(err error) *refusal {
	if problem := certificateProblem(err); problem != "" {
		return &refusal{ReasonCertificate, "the agent's certificate is not accepted: " + problem}
	}
	if alert := certificateAlert(err); alert != "" {
		// An agent sends the same alert for every problem of the certificate.
		return &refusal{ReasonStoreCertificate, "the agent does not accept the store's certificate (" + alert +
			"): the agent's error says why"}
	}
	if err != nil && strings.Contains(err.Error(), "client didn't provide a certificate") {
		return &refusal{ReasonCertificate, "the agent has no certificate and the store demands one: give the agent " +
			"ssl_cert and ssl_cert_key in --rdzv-conf"}
	}
	return nil
}
