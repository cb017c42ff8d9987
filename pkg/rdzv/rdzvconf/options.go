package rdzvconf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Option is one entry of the table of options.
type Option struct {
	Names    []string // torch's main name first
	Backends []string // the backends that have the option
	Help     string

	set func(string) error
}

// allNames returns the option's names for a message.
func (o Option) allNames() string {
	if len(o.Names) == 1 {
		return o.Names[0]
	}
	return o.Names[0] + " (or " + strings.Join(o.Names[1:], ", ") + ")"
}

// Options returns the table, for lists of all options.
func Options() []Option { return new(reader).options() }

// options is the table. An option may have several entries, for different backends.
func (r *reader) options() []Option {
	dynamic, etcd := []string{rdzv.BackendC10d, rdzv.BackendEtcd}, []string{rdzv.BackendEtcd}
	c10d, static := []string{rdzv.BackendC10d}, []string{rdzv.BackendStatic}
	own := []string{rdzv.BackendC10d, rdzv.BackendStatic}
	all := []string{rdzv.BackendC10d, rdzv.BackendEtcd, rdzv.BackendStatic}
	option := func(backends []string, set func(string) error, help string, names ...string) Option {
		return Option{Names: names, Backends: backends, Help: help, set: set}
	}
	s := &r.Settings
	return []Option{
		option(dynamic, whole(&s.JoinTimeout),
			"seconds that a node waits for a round, or for a store that does not answer (600)", "join_timeout", "timeout"),
		option(static, whole(&s.JoinTimeout), "seconds that a node waits for the others (900)", "timeout"),
		option(dynamic, whole(&s.LastCall),
			"seconds that the first round stays open after the minimum of nodes has joined (30)", "last_call_timeout"),
		option(all, whole(&s.CloseTimeout), "seconds that a node waits for the leader's answer when it leaves the exit "+
			"barrier or closes the run (30)", "close_timeout"),
		option(all, whole(&s.HeartbeatTimeout), "seconds that one keep-alive may take (5)", "heartbeat_timeout"),
		option(all, whole(&s.KeepAliveInterval), "seconds between keep-alives (5)", "keep_alive_interval"),
		option(all, count(&s.KeepAliveMaxAttempt), "missed keep-alives after which a node is lost (3)",
			"keep_alive_max_attempt"),
		option(dynamic, accepted, "accepted for torchrun 2.15, without effect: agents do not compete for one key",
			"cas_backoff_max_seconds"),
		option(all, whole(&s.ReadTimeout), "seconds to wait for one reply of the store, at most heartbeat_timeout and a "+
			"third of keep_alive_interval × keep_alive_max_attempt (60)", "read_timeout"),
		option(all, fraction(&s.JoinSettle),
			"seconds, decimals allowed, that a node which joins a running job waits for more nodes, if more may join (0.5)",
			"join_settle"),
		option(all, above0(&s.ResultTTL), "seconds that the job's result is kept for late agents (600)", "result_ttl"),
		option(c10d, truth(&s.IsHost), "whether this node hosts the store (detected)", "is_host"),
		option(c10d, voters(&s.Voters), "how many agents keep the job's store together, so that any one of them may be "+
			"lost: 1, 3 or 5 (3 in jobs of several nodes)", "voters"),
		option(c10d, onlyTCP, "only tcp (tcp)", "store_type"),
		option(own, text(&s.Certificates.CA), "file with the certificate authorities that sign the certificates of all "+
			"agents and of the store; both sides then verify each other's (none: neither does)", "ca_cert", "cacert"),
		option(own, text(&s.Certificates.Cert), "file with this node's certificate, for agents and for the store that it "+
			"may host (made in memory)", "ssl_cert", "cert"),
		option(own, text(&s.Certificates.Key), "file with the key of this node's certificate", "ssl_cert_key", "key"),
		option(etcd, protocol(&s.Etcd.TLS), "http or https (http)", "protocol"),
		option(etcd, text(&s.Etcd.CACert),
			"file with the certificate authorities for etcd's certificate (the system's)", "ca_cert", "cacert"),
		option(etcd, text(&s.Etcd.Cert), "file with the client certificate", "ssl_cert", "cert"),
		option(etcd, text(&s.Etcd.Key), "file with the key of the client certificate", "ssl_cert_key", "key"),
		option(etcd, text(&s.Etcd.User), "etcd user", "user"),
		option(etcd, r.password, "the user's password, not on the command line", "password"),
		option(etcd, r.passwordFile, "file with the user's password", "password_file"),
		option(etcd, prefix(&s.Etcd.Prefix), "prefix of all keys (none)", "etcd_prefix"),
	}
}

func (r *reader) password(s string) error {
	r.Etcd.Password = Secret{s}
	return nil
}

func (r *reader) passwordFile(path string) (err error) {
	r.Etcd.Password, err = r.secretFile(path)
	return err
}

// readSecret reads a file that holds a secret and, perhaps, a newline.
func readSecret(path string) (Secret, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Secret{}, fmt.Errorf("cannot be read: %w", err)
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" {
		return Secret{}, errors.New("holds no secret: it is empty")
	}
	return Secret{secret}, nil
}

// The setters of values. Torch's own times are whole seconds.

func text(to *string) func(string) error {
	return func(s string) error { *to = s; return nil }
}

func prefix(to *string) func(string) error {
	return func(s string) error { *to = strings.TrimRight(s, "/"); return nil }
}

func whole(to *time.Duration) func(string) error {
	return func(s string) error {
		n := 0
		err := count(&n)(s)
		*to = time.Duration(n) * time.Second
		return err
	}
}

func count(to *int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange) || n < 1:
			return errors.New("must be a whole number, at least 1")
		case n > seconds.Max:
			return fmt.Errorf("must be at most %.0f", seconds.Max)
		}
		*to = n
		return nil
	}
}

func fraction(to *time.Duration) func(string) error {
	return func(s string) (err error) { *to, err = seconds.Parse(s); return err }
}

// accepted checks a time that has no effect here.
func accepted(s string) error {
	_, err := seconds.Parse(s)
	return err
}

func above0(to *time.Duration) func(string) error {
	return func(s string) (err error) {
		if *to, err = seconds.Parse(s); err == nil && *to <= 0 {
			err = errors.New("must be above 0")
		}
		return err
	}
}

func truth(to **bool) func(string) error {
	return func(s string) error {
		yes, err := rdzv.Parameters{Config: map[string]string{"": s}}.Bool("", false)
		if err != nil {
			return errors.New("must be true or false")
		}
		*to = &yes
		return nil
	}
}

func oneOf(s string, values ...string) error {
	if !slices.Contains(values, s) {
		return errors.New("must be one of " + strings.Join(values, ", "))
	}
	return nil
}

func voters(to *int) func(string) error {
	return func(s string) error {
		err := oneOf(strings.TrimSpace(s), "1", "3", "5")
		if err == nil {
			*to = int(strings.TrimSpace(s)[0] - '0')
		}
		return err
	}
}

func protocol(tls *bool) func(string) error {
	return func(s string) error {
		*tls = s == "https"
		return oneOf(s, "http", "https")
	}
}

func onlyTCP(s string) error {
	s = strings.ToLower(s) // as torch 2.14 torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py does
	if s == "file" {
		return errors.New("is not supported: leave it out, and agents meet over TCP at the endpoint")
	}
	return oneOf(s, "tcp")
}
