package config

import (
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// certificateNames are the names of the settings for certificates, in messages.
type certificateNames struct {
	owner    string // who has them, with a verb
	ca, pair string // the settings
	where    string // says where the settings are given; empty for flags
	noSecret string // the problem if there are neither certificates nor a secret
}

var (
	optionNames = certificateNames{
		owner: "this node has ", ca: "ca_cert", pair: "ssl_cert and ssl_cert_key", where: " in --rdzv-conf",
		noSecret: "the job has no secret, so its store would serve everybody who can reach it",
	}
	flagNames = certificateNames{
		owner: "the store has ", ca: "--ca-cert", pair: "--ssl-cert and --ssl-cert-key",
		noSecret: "the store has no secret, so it would serve everybody who can reach it",
	}
)

// lacking says what these files lack so that both sides prove who they are without a secret, and what to do about it.
func (n certificateNames) lacking(files certfiles.Files) (why, remedy string) {
	switch {
	case files.CA != "":
		why, remedy = n.owner+n.ca+", but not "+n.pair+", so it cannot prove who it is", "give "+n.pair
	case files.Cert != "":
		why, remedy = n.owner+n.pair+", but not "+n.ca+", so it would serve everybody who can reach it", "give "+n.ca
	default:
		return n.noSecret, secretAdvice
	}
	return why, remedy + n.where + ", or a secret: " + secretAdvice
}

// openCertificates opens the files. Its error says for people why they cannot be used.
func openCertificates(files certfiles.Files) error {
	_, err := certfiles.Open(files, zerolog.Nop())
	return err
}

// checkCertificates refuses certificates of --rdzv-conf that cannot be used. At a local endpoint the kernel says who
// connects.
func (r *Rendezvous) checkCertificates(settings *reader, from surroundings) {
	const name = "rdzv-conf"
	files := &r.Certificates
	switch {
	case settings.err != nil || !files.Given():
	case r.Local:
		settings.warn(name, "certificates have no effect with a local endpoint, where the kernel says who connects")
		*files = certfiles.Files{}
	default:
		if err := from.certificates(*files); err != nil {
			settings.fail(name, err.Error())
		}
	}
}

// StoreNames returns the hosts of the endpoints as they were given. The certificate of the job's store must have one of
// these names.
func (r *Rendezvous) StoreNames() []string {
	var names []string
	for _, at := range r.Endpoints {
		names = append(names, at.Host)
	}
	if host, _, err := rdzvconf.ParseEndpoint(r.Endpoint); len(names) == 0 && err == nil && host != "" {
		names = append(names, host)
	}
	return names
}

// storeCertificates reads the certificates of elasticrun store.
func storeCertificates(r *reader) certfiles.Files {
	files := certfiles.Files{Cert: r.text("ssl-cert"), Key: r.text("ssl-cert-key"), CA: r.text("ca-cert")}
	for _, name := range []string{"ssl-cert", "ssl-cert-key", "ca-cert"} {
		if r.given(name) && r.text(name) == "" {
			r.fail(name, "must not be empty")
		}
	}
	switch {
	case files.Cert != "" && files.Key == "":
		r.fail("ssl-cert", "needs --ssl-cert-key, the file with its key")
	case files.Cert == "" && files.Key != "":
		r.fail("ssl-cert-key", "needs --ssl-cert, the file with the certificate")
	}
	if r.err != nil || !files.Given() {
		return files
	}
	if err := openCertificates(files); err != nil {
		name := "ca-cert"
		if files.Cert != "" {
			name = "ssl-cert"
		}
		r.fail(name, err.Error())
	}
	return files
}
