package config

import (
	"runtime"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// Admission says whom the agents' store of a job serves.
type Admission struct {
	// Who is a phrase for people, such as "agents with the secret of PET_RDZV_SECRET". It never has the secret.
	Who string
	// Open says that the store serves everybody who can reach it.
	Open bool
	// Why says in one sentence why the store is open, and Remedy what closes it, for people. Both are empty if the store
	// is not open.
	Why, Remedy string
}

// Admission returns whom the job's store serves.
func (c *Config) Admission() Admission {
	v := &c.Rendezvous
	switch {
	case c.MaxNodes == 1:
		return Admission{Who: "this node alone"}
	case v.Local:
		return Admission{Who: "agents of this user and of root, on this machine"}
	case v.Backend == rdzv.BackendEtcd && v.Etcd.Cert != "":
		return Admission{Who: "whom etcd admits; this node shows the certificate " + v.Etcd.Cert}
	case v.Backend == rdzv.BackendEtcd && v.Etcd.User != "":
		return Admission{Who: "whom etcd admits; this node has the password of its user " + v.Etcd.User}
	case v.Backend == rdzv.BackendEtcd:
		return Admission{
			Who: "everybody who can reach etcd", Open: true, Why: "etcd serves everybody who can reach it", Remedy: etcdAdvice,
		}
	case v.Certificates.Mutual():
		return Admission{Who: "agents with a certificate that " + v.Certificates.CA + " verifies" + andSecret(v)}
	case v.Secret.Reveal() != "":
		return Admission{Who: "agents with the secret of " + v.SecretSource}
	case c.DrawsSecret:
		return Admission{Who: "the agents that srun starts: they get a new secret"}
	case v.StoreUsers.checkedAt(v.Endpoints...):
		return Admission{Who: "processes of this user and of root, on this machine" + v.StoreUsers.more()}
	}
	a := Admission{Who: "everybody who can reach the endpoint", Open: true}
	a.Why, a.Remedy = optionNames.lacking(v.Certificates)
	switch {
	case v.Certificates.CA != "":
		a.Who += "; this node verifies the store by " + v.Certificates.CA + " and has no certificate to show"
	case v.Certificates.Cert != "":
		a.Who += "; this node shows " + v.Certificates.Cert + " and has no CA to verify others"
	}
	return a
}

// checkedAt reports whether a store at these addresses checks the users of connections: only processes of this machine
// can reach it, and the kernel knows whose they are.
func (u StoreUsers) checkedAt(addrs ...HostPort) bool {
	elsewhere := func(at HostPort) bool { return !rdzvconf.IsLoopback(at.Host) }
	return runtime.GOOS == "linux" && !u.Anybody && len(addrs) > 0 && !slices.ContainsFunc(addrs, elsewhere)
}

// more names the users for a sentence; empty for nobody.
func (u StoreUsers) more() string {
	if len(u.IDs) == 0 {
		return ""
	}
	return ", and of --store-users"
}

// andSecret returns what agents need beside a certificate.
func andSecret(v *Rendezvous) string {
	if v.Secret.Reveal() == "" {
		return ""
	}
	return ", and the secret of " + v.SecretSource
}

// secretAdvice says how the agents of a job get a secret.
const secretAdvice = "elasticrun secret > FILE makes one, for --rdzv-secret-file=FILE on each node"

// etcdAdvice says how the agents of a job authenticate to etcd.
const etcdAdvice = "give --rdzv-conf a client certificate (ssl_cert, ssl_cert_key) or a user (user, password_file)"

// checkAdmission applies --require-auth.
func (c *Config) checkAdmission(r *reader) {
	etcd := c.Rendezvous.Backend == rdzv.BackendEtcd
	admission := c.Admission()
	switch {
	case r.err != nil:
	case c.Rendezvous.RequireAuth && admission.Open:
		r.fail("require-auth", admission.Why+": "+admission.Remedy)
	case etcd && c.MaxNodes > 1 && r.given("rdzv-secret-file"):
		r.warn("rdzv-secret-file", "has no effect with the etcd backend: etcd itself decides whom it serves")
	}
}
