package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// confItem is one KEY=VALUE of --rdzv-conf.
type confItem struct {
	key, value string
	// behindPassword says that a password comes before this item. The item may be a part of that password, which may
	// contain commas, so it is never shown.
	behindPassword bool
}

// parseConf reads KEY=VALUE,KEY=VALUE by torchrun's rules (torch 2.14 torch/distributed/elastic/rendezvous/utils.py).
// It also accepts one pair of quotes around the whole, which YAML files often leave in an argument.
func parseConf(s string) ([]confItem, error) {
	s = unquoted(strings.TrimSpace(s))
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var items []confItem
	behindPassword := false
	for text := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(text, "=")
		item := confItem{strings.TrimSpace(key), strings.TrimSpace(value), behindPassword}
		switch {
		case behindPassword && (item.key == "" || item.value == ""):
			return nil, errBehindPassword
		case item.key == "":
			return nil, fmt.Errorf("%q has no key: write KEY=VALUE,KEY=VALUE", text)
		case item.value == "":
			return nil, fmt.Errorf("%s has no value: write %s=VALUE", item.key, item.key)
		}
		items = append(items, item)
		behindPassword = behindPassword || isPassword(item.key)
	}
	return items, nil
}

// unquoted removes the quotes around s, unless there are quotes of the same kind in between.
func unquoted(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return s
	}
	if inner := s[1 : len(s)-1]; !strings.Contains(inner, s[:1]) {
		return inner
	}
	return s
}

var errBehindPassword = errors.New("the text after the password is no known option " +
	"(it is not shown, because it may be a part of the password): put a password with a comma into a file, " +
	"password_file=FILE")

// isPassword recognizes keys whose values must not be shown, including misspelled ones.
func isPassword(key string) bool {
	key = strings.ToLower(strings.TrimSpace(key))
	return !strings.HasSuffix(key, "_file") &&
		slices.ContainsFunc(
			[]string{"pass", "pwd", "secret", "token"},
			func(part string) bool { return strings.Contains(key, part) },
		)
}

// redactConf removes a password, and all text after it, from the text of --rdzv-conf.
func redactConf(s string) string {
	at := 0
	for text := range strings.SplitAfterSeq(s, ",") {
		if key, _, found := strings.Cut(text, "="); found && isPassword(key) {
			return s[:at+len(key)+1] + hidden
		}
		at += len(text)
	}
	return s
}

// confOption is one option of --rdzv-conf.
type confOption struct {
	names    []string // torch's main name first
	backends []string // the backends that have the option
	set      func(string) error
	help     string
}

// allNames returns the option's names for a message.
func (o confOption) allNames() string {
	if len(o.names) == 1 {
		return o.names[0]
	}
	return o.names[0] + " (or " + strings.Join(o.names[1:], ", ") + ")"
}

// confReader sets the fields of a Rendezvous from options.
type confReader struct {
	*Rendezvous
	from     surroundings
	given    map[string]confItem // main name → what was given and counts
	warnings []string
}

// defaults sets the values of options that are not given.
func (r *Rendezvous) defaults() {
	r.JoinTimeout, r.LastCall = 600*time.Second, 30*time.Second
	if r.Backend == rdzv.BackendStatic {
		r.JoinTimeout = 900 * time.Second
	}
	r.CloseTimeout, r.HeartbeatTimeout, r.ReadTimeout = 30*time.Second, 5*time.Second, 60*time.Second
	r.KeepAliveInterval, r.KeepAliveMaxAttempt = 5*time.Second, 3
	r.JoinSettle, r.ResultTTL = time.Second/2, 600*time.Second
}

// options is the table of --rdzv-conf. An option may have several entries, for different backends.
func (c *confReader) options() []confOption {
	dynamic, etcd := []string{rdzv.BackendC10d, rdzv.BackendEtcd}, []string{rdzv.BackendEtcd}
	c10d, static := []string{rdzv.BackendC10d}, []string{rdzv.BackendStatic}
	all := []string{rdzv.BackendC10d, rdzv.BackendEtcd, rdzv.BackendStatic}
	return []confOption{
		{
			[]string{"join_timeout", "timeout"},
			dynamic,
			whole(&c.JoinTimeout),
			"seconds that a node waits for a round, or for a store that does not answer (600)",
		},
		{[]string{"timeout"}, static, whole(&c.JoinTimeout), "seconds that a node waits for the others (900)"},
		{
			[]string{"last_call_timeout"},
			dynamic,
			whole(&c.LastCall),
			"seconds that the first round stays open after the minimum of nodes has joined (30)",
		},
		{[]string{"close_timeout"}, all, whole(&c.CloseTimeout), "seconds to close the rendezvous (30)"},
		{[]string{"heartbeat_timeout"}, all, whole(&c.HeartbeatTimeout), "seconds that one keep-alive may take (5)"},
		{[]string{"keep_alive_interval"}, all, whole(&c.KeepAliveInterval), "seconds between keep-alives (5)"},
		{
			[]string{"keep_alive_max_attempt"},
			all,
			count(&c.KeepAliveMaxAttempt),
			"missed keep-alives after which a node is lost (3)",
		},
		{
			[]string{"cas_backoff_max_seconds"},
			dynamic,
			accepted,
			"accepted for torchrun 2.15, without effect: agents do not compete for one key",
		},
		{[]string{"read_timeout"}, all, whole(&c.ReadTimeout), "seconds to wait for one reply of the store (60)"},
		{
			[]string{"join_settle"},
			all,
			fraction(&c.JoinSettle),
			"seconds, decimals allowed, that a node which joins a running job waits for more nodes (0.5)",
		},
		{[]string{"result_ttl"}, all, above0(&c.ResultTTL), "seconds that the job's result is kept for late agents (600)"},
		{[]string{"is_host"}, c10d, truth(&c.IsHost), "whether this node hosts the store (detected)"},
		{[]string{"store_type"}, c10d, onlyTCP, "only tcp (tcp)"},
		{[]string{"protocol"}, etcd, c.protocol, "http or https (http)"},
		{
			[]string{"ca_cert", "cacert"},
			etcd,
			text(&c.Etcd.CACert),
			"file with the certificate authorities for etcd's certificate (the system's)",
		},
		{[]string{"ssl_cert", "cert"}, etcd, text(&c.Etcd.Cert), "file with the client certificate"},
		{[]string{"ssl_cert_key", "key"}, etcd, text(&c.Etcd.Key), "file with the key of the client certificate"},
		{[]string{"user"}, etcd, text(&c.Etcd.User), "etcd user"},
		{[]string{"password"}, etcd, c.password, "the user's password; everybody who can list processes can see it"},
		{[]string{"password_file"}, etcd, c.passwordFile, "file with the user's password"},
		{[]string{"etcd_prefix"}, etcd, c.prefix, "prefix of all keys (none)"},
	}
}

// read sets the options. It warns about options of other backends, which have no effect.
func (c *confReader) read(items []confItem) error {
	options := c.options()
	c.given = map[string]confItem{}
	for _, item := range items {
		mine := func(o confOption) bool {
			return slices.Contains(o.names, item.key) && slices.Contains(o.backends, c.Backend)
		}
		if i := slices.IndexFunc(options, mine); i >= 0 {
			if err := c.set(options[i], item); err != nil {
				return err
			}
			continue
		}
		others := slices.ContainsFunc(options, func(o confOption) bool { return slices.Contains(o.names, item.key) })
		switch {
		case item.key == "rank":
			return errors.New("rank is set by --node-rank")
		case others:
			c.warnings = append(c.warnings, fmt.Sprintf("%s has no effect with the %s backend", item.key, c.Backend))
		case item.behindPassword:
			return errBehindPassword
		default:
			return fmt.Errorf(
				"unknown option %s: the %s backend has %s",
				printable.Quote(item.key),
				c.Backend,
				namesOf(options, c.Backend),
			)
		}
	}
	return c.check()
}

// set sets one option. Of several names of an option the first one counts. Of several values of one name the last one
// counts, as in torchrun.
func (c *confReader) set(o confOption, item confItem) error {
	name := o.names[0]
	before, twice := c.given[name]
	weaker := twice && slices.Index(o.names, before.key) < slices.Index(o.names, item.key)
	err := o.set(item.value) // which also checks a value that does not count
	switch {
	case err == nil && weaker:
		c.differ(item, before)
		return o.set(before.value)
	case err == nil:
		if twice {
			c.differ(before, item)
		}
		c.given[name] = item
		return nil
	case isPassword(item.key), item.behindPassword:
		return fmt.Errorf("%s %w", item.key, err)
	}
	return fmt.Errorf("%s=%s %w", item.key, printable.Quote(item.value), err)
}

// differ warns if ignored, another name of the option, has another value than the one that counts.
func (c *confReader) differ(ignored, counts confItem) {
	warning := fmt.Sprintf("%s has no effect beside %s, which has another value", ignored.key, counts.key)
	if ignored.key != counts.key && ignored.value != counts.value && !slices.Contains(c.warnings, warning) {
		c.warnings = append(c.warnings, warning)
	}
}

func namesOf(options []confOption, backend string) string {
	var names []string
	for _, o := range options {
		if slices.Contains(o.backends, backend) {
			names = append(names, o.allNames())
		}
	}
	return strings.Join(names, ", ")
}

// etcdMinTTL is the shortest TTL of a lease that etcd keeps exactly.
const etcdMinTTL = 2 * time.Second

// check refuses options that contradict each other.
func (c *confReader) check() error {
	const product = "keep_alive_interval × keep_alive_max_attempt"
	one := func(name string) bool { return c.given[name].key != "" }
	switch {
	case c.KeepAliveInterval > maxSeconds*time.Second/time.Duration(c.KeepAliveMaxAttempt):
		return fmt.Errorf("%s must be at most %.0f seconds", product, maxSeconds)
	case c.Backend != rdzv.BackendEtcd:
		return nil
	case c.TTL() < etcdMinTTL:
		return fmt.Errorf("%s must be at least %.0f seconds with etcd", product, etcdMinTTL.Seconds())
	case one("password") && one("password_file"):
		return errors.New("password and password_file are the same option: give one of them")
	case one("user") != (one("password") || one("password_file")):
		return errors.New("user and password (or password_file) belong together")
	case one("ssl_cert") != one("ssl_cert_key"):
		return errors.New("ssl_cert and ssl_cert_key belong together")
	case !c.Etcd.TLS && (one("ssl_cert") || one("ca_cert")):
		return errors.New("certificates need protocol=https")
	case !c.Etcd.TLS && one("user"):
		c.warnings = append(c.warnings, "the password is sent in plain text; use protocol=https")
	}
	return nil
}

func (c *confReader) protocol(s string) error {
	_, err := oneOf("http", "https")(s)
	c.Etcd.TLS = s == "https"
	return err
}

func (c *confReader) prefix(s string) error {
	c.Etcd.Prefix = strings.TrimRight(s, "/")
	return nil
}

func (c *confReader) password(s string) error {
	c.Etcd.Password = Secret{s}
	return nil
}

func (c *confReader) passwordFile(path string) error {
	secret, warning, err := c.from.secret(path)
	if warning != "" {
		c.warnings = append(c.warnings, "password_file="+printable.Quote(path)+": "+warning)
	}
	c.Etcd.Password = secret
	return err
}

func onlyTCP(s string) error {
	s = strings.ToLower(s) // as torch 2.14 torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py does
	if s == "file" {
		return errors.New("is not supported: leave it out, and agents meet over TCP at --rdzv-endpoint")
	}
	_, err := oneOf("tcp")(s)
	return err
}

// The setters of values. Torch's own times are whole seconds.

func text(to *string) func(string) error {
	return func(s string) error { *to = s; return nil }
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
		n, err := strconv.Atoi(s)
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange) || n < 1:
			return errors.New("must be a whole number, at least 1")
		case n > maxSeconds:
			return fmt.Errorf("must be at most %.0f", maxSeconds)
		}
		*to = n
		return nil
	}
}

func fraction(to *time.Duration) func(string) error {
	return func(s string) (err error) { *to, err = seconds(s); return err }
}

// accepted checks a time that has no effect here.
func accepted(s string) error {
	_, err := seconds(s)
	return err
}

func above0(to *time.Duration) func(string) error {
	return func(s string) (err error) { *to, err = aboveZero(s); return err }
}

// truth reads a truth value by torch's rules (torch 2.14 torch/distributed/elastic/rendezvous/api.py).
func truth(to **bool) func(string) error {
	return func(s string) error {
		s = strings.ToLower(s)
		yes := slices.Contains([]string{"1", "true", "t", "yes", "y"}, s)
		if !yes && !slices.Contains([]string{"0", "false", "f", "no", "n"}, s) {
			return errors.New("must be true or false")
		}
		*to = &yes
		return nil
	}
}
