package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// readConf reads the options of a backend as the launcher does.
func readConf(backend, text string) (*Rendezvous, []string, error) {
	items, err := parseConf(text)
	if err != nil {
		return nil, nil, err
	}
	from := func(path string) (Secret, error) { return rdzvconf.NewSecret("from " + path), nil }
	v := &Rendezvous{Backend: backend}
	var warnings []string
	v.Settings, warnings, err = rdzvconf.Read(backend, items, from)
	return v, warnings, err
}

func TestConf(t *testing.T) {
	yes, no := true, false
	tests := []struct {
		backend, in string
		change      func(*Rendezvous)
	}{
		{"c10d", "", func(*Rendezvous) {}},
		{"c10d", "  ", func(*Rendezvous) {}},
		{"c10d", "join_timeout=5", func(v *Rendezvous) { v.JoinTimeout = 5 * time.Second }},
		{"c10d", "timeout=7", func(v *Rendezvous) { v.JoinTimeout = 7 * time.Second }},
		{"etcd", "timeout=7", func(v *Rendezvous) { v.JoinTimeout = 7 * time.Second }},
		{"static", "timeout=7", func(v *Rendezvous) { v.JoinTimeout = 7 * time.Second }},
		{"c10d", " join_timeout = 5 , is_host = Yes ", func(v *Rendezvous) { v.JoinTimeout, v.IsHost = 5*time.Second, &yes }},
		{"c10d", "is_host=0", func(v *Rendezvous) { v.IsHost = &no }},
		{"c10d", "voters=5", func(v *Rendezvous) { v.Voters = 5 }},
		{"c10d", "store_type=tCp", func(*Rendezvous) {}},
		{"c10d", "cas_backoff_max_seconds=0.5", func(*Rendezvous) {}},
		{"etcd", "cas_backoff_max_seconds=0", func(*Rendezvous) {}},
		{"c10d", "timeout=5,join_timeout=5", func(v *Rendezvous) { v.JoinTimeout = 5 * time.Second }},
		{"c10d", `'join_timeout=5,is_host=0'`, func(v *Rendezvous) { v.JoinTimeout, v.IsHost = 5*time.Second, &no }},
		{"c10d", ` "join_timeout=5" `, func(v *Rendezvous) { v.JoinTimeout = 5 * time.Second }},
		{"c10d", "''", func(*Rendezvous) {}},
		{"c10d", "join_timeout=5,join_timeout=6", func(v *Rendezvous) { v.JoinTimeout = 6 * time.Second }},
		{
			"c10d",
			"last_call_timeout=1,close_timeout=2,heartbeat_timeout=3,keep_alive_interval=4,keep_alive_max_attempt=5,read_timeout=2,store_type=tcp",
			func(v *Rendezvous) {
				v.LastCall, v.CloseTimeout, v.HeartbeatTimeout, v.KeepAliveInterval, v.KeepAliveMaxAttempt, v.ReadTimeout =
					time.Second, 2*time.Second, 3*time.Second, 4*time.Second, 5, 2*time.Second
			},
		},
		{
			"c10d",
			"join_settle=0,result_ttl=1.5",
			func(v *Rendezvous) { v.JoinSettle, v.ResultTTL = 0, 1500*time.Millisecond },
		},
		{
			"etcd",
			"etcd_prefix=/a/b/,protocol=https,ca_cert=ca,ssl_cert=c,ssl_cert_key=k,user=u,password=p=q",
			func(v *Rendezvous) {
				v.Etcd = rdzvconf.Etcd{TLS: true, CACert: "ca", Cert: "c", Key: "k", User: "u", Password: rdzvconf.NewSecret("p=q"), Prefix: "/a/b"}
			},
		},
		{"etcd", "protocol=https,cacert=ca,cert=c,key=k,user=u,password_file=f", func(v *Rendezvous) {
			v.Etcd = rdzvconf.Etcd{TLS: true, CACert: "ca", Cert: "c", Key: "k", User: "u", Password: rdzvconf.NewSecret("from f")}
		}},
	}
	for _, tt := range tests {
		want := &Rendezvous{Backend: tt.backend, Settings: rdzvconf.Defaults(tt.backend)}
		tt.change(want)
		got, warnings, err := readConf(tt.backend, tt.in)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || len(warnings) > 0 || diff != "" {
			t.Errorf("%s %q: %v, warnings %q (-want +got):\n%s", tt.backend, tt.in, err, warnings, diff)
		}
	}
}

// The two names of an option are accepted together, as torch's own tests give them. Torch's main name counts.
func TestConfBothNames(t *testing.T) {
	const warning = "timeout has no effect beside join_timeout, which has another value"
	for _, in := range []string{"join_timeout=5,timeout=6", "timeout=6,join_timeout=5", "timeout=6,join_timeout=4,join_timeout=5"} {
		got, warnings, err := readConf("c10d", in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if diff := cmp.Diff([]string{warning}, warnings); diff != "" || got.JoinTimeout != 5*time.Second {
			t.Errorf("%s: join_timeout is %v, warnings (-want +got):\n%s", in, got.JoinTimeout, diff)
		}
	}
}

// A read_timeout above the time that a request may take is not used.
func TestConfReadTimeout(t *testing.T) {
	const warning = "read_timeout is 1m, but one reply of the store may take at most 4s " +
		"(heartbeat_timeout, and a third of keep_alive_interval × keep_alive_max_attempt)"
	for in, want := range map[string]time.Duration{
		"read_timeout=60,heartbeat_timeout=4": 4 * time.Second, "read_timeout=2": 2 * time.Second, "": 5 * time.Second,
	} {
		got, warnings, err := readConf("c10d", in)
		if err != nil || got.RequestTimeout() != want || slices.Contains(warnings, warning) != (want == 4*time.Second) {
			t.Errorf("%q: requests may take %v, want %v; warnings %q, %v", in, got.RequestTimeout(), want, warnings, err)
		}
	}
}

func TestConfRefuses(t *testing.T) {
	tests := []struct{ backend, in, want string }{
		{"c10d", "join_timeout=0", "join_timeout=0 must be a whole number, at least 1"},
		{"c10d", "join_timeout=1.5", "join_timeout=1.5 must be a whole number, at least 1"},
		{"c10d", "join_timeout=99999999999999999999", "join_timeout=99999999999999999999 must be at most 1000000000"},
		{"c10d", "keep_alive_max_attempt=1e9", "keep_alive_max_attempt=1e9 must be a whole number, at least 1"},
		{
			"c10d",
			"keep_alive_interval=999999999,keep_alive_max_attempt=999999999",
			"keep_alive_interval × keep_alive_max_attempt must be at most 1000000000 seconds",
		},
		{"static", "timeout=-1", "timeout=-1 must be a whole number, at least 1"},
		{"c10d", "cas_backoff_max_seconds=-1", "cas_backoff_max_seconds=-1 must not be negative"},
		{"c10d", "cas_backoff_max_seconds=x", "cas_backoff_max_seconds=x must be a number of seconds, or a duration such as 30s or 5m"},
		{"c10d", "cas_backoff_max_seconds=inf", "cas_backoff_max_seconds=inf must be at most 1000000000 seconds"},
		{"c10d", "is_host=maybe", "is_host=maybe must be true or false"},
		{"c10d", "voters=2", "voters=2 must be one of 1, 3, 5"},
		{"c10d", "store_type=http", "store_type=http must be one of tcp"},
		{
			"c10d",
			"store_type=file",
			"store_type=file is not supported: leave it out, and agents meet over TCP at the endpoint",
		},
		{"c10d", "join_settle=-1", "join_settle=-1 must not be negative"},
		{"etcd", "result_ttl=0", "result_ttl=0 must be above 0"},
		{"c10d", "join_timeout=5,timeout=x", "timeout=x must be a whole number, at least 1"},
		{"c10d", "timeout=5,join_timeout=x", "join_timeout=x must be a whole number, at least 1"},
		{"c10d", `'join_timeout=5`, `unknown option 'join_timeout; the nearest is join_timeout`},
		{"c10d", `'join_timeout=5',read_timeout='6'`, `unknown option 'join_timeout; the nearest is join_timeout`},
		{
			"c10d",
			"join_timeut=5",
			"unknown option join_timeut; the nearest is join_timeout",
		},
		{
			"static",
			"x=5",
			"unknown option x: the static backend has timeout, close_timeout, heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt, read_timeout, join_settle, result_ttl, ca_cert (or cacert), ssl_cert (or cert), ssl_cert_key (or key)",
		},
		{
			"etcd",
			"x=5",
			"unknown option x: the etcd backend has join_timeout (or timeout), last_call_timeout, close_timeout, heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt, cas_backoff_max_seconds, read_timeout, join_settle, result_ttl, protocol, ca_cert (or cacert), ssl_cert (or cert), ssl_cert_key (or key), user, password, password_file, etcd_prefix",
		},
		{"c10d", "x=5", "unknown option x: the c10d backend has join_timeout (or timeout), last_call_timeout, close_timeout, heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt, cas_backoff_max_seconds, read_timeout, join_settle, result_ttl, is_host, voters, store_type, ca_cert (or cacert), ssl_cert (or cert), ssl_cert_key (or key)"},
		{"etcd", "protocol=ftp", "protocol=ftp must be one of http, https"},
		{"etcd", "ca_cert=a", "certificates need protocol=https"},
		{"etcd", "protocol=https,cert=a", "ssl_cert and ssl_cert_key belong together"},
		{"c10d", "cert=a", "ssl_cert and ssl_cert_key belong together"},
		{"static", "key=a,cacert=b", "ssl_cert and ssl_cert_key belong together"},
		{"etcd", "user=a", "user and password (or password_file) belong together"},
		{"etcd", "user=a,password=b,password_file=c", "password and password_file are the same option: give one of them"},
		{
			"etcd",
			"keep_alive_interval=1,keep_alive_max_attempt=1",
			"keep_alive_interval × keep_alive_max_attempt must be at least 2 seconds with etcd",
		},
		{"c10d", "a=b,", `"" has no key: write KEY=VALUE,KEY=VALUE`},
		{"c10d", "=b", `"=b" has no key: write KEY=VALUE,KEY=VALUE`},
		{"c10d", "join_timeout=", "join_timeout has no value: write join_timeout=VALUE"},
	}
	for _, tt := range tests {
		_, _, err := readConf(tt.backend, tt.in)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s %q: got %v, want %s", tt.backend, tt.in, err, tt.want)
		}
	}
}

// TestConfHidesPasswords checks that no part of a password is in an error, a warning, the settings or a printed Config.
func TestConfHidesPasswords(t *testing.T) {
	clean(t)
	for _, conf := range []string{
		"user=u,password=hush",
		"password=hush",
		"user=u,password=a,hush",
		"user=u,password=a,hush=",
		"user=u,password=a,hush=b",
		"user=u,password=a,,hush",
		"user=u,password=a,timeout=hush",
		"user=u,passwd=hush",
		"user=u, Password = hush ",
		"bogus=1,password=hush",
		"user=u,password=hush,ssl_cert=hush",
		"user=u,password=hush,join_settle=hush",
		"'user=u,password=hush'",
		`"password=hush"`,
	} {
		t.Setenv(confEnv, conf)
		c, err := load("--rdzv-backend=etcd --rdzv-id=a s.py")
		if err != nil {
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: the error shows it: %v", conf, err)
			}
			continue
		}
		text, encoded := printed(t, c)
		if strings.Contains(text+encoded, "hush") {
			t.Errorf("%s: the configuration shows it:\n%s\n%s", conf, text, encoded)
		}
		if c.Rendezvous.Etcd.Password.Reveal() != "hush" {
			t.Errorf("%s: the password is lost", conf)
		}
	}
}

func TestRedactConf(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"a=b,c=d":                   "a=b,c=d",
		"password":                  "password",
		"a=b,password=c":            "a=b,password=(hidden)",
		"password=c,a=b":            "password=(hidden)",
		"a=b, PassWord =c=d,e":      "a=b, PassWord =(hidden)",
		"password_file=f,user=u":    "password_file=f,user=u",
		"'user=u,password=x'":       "'user=u,password=(hidden)",
		"user=u,passwd=x,timeout=1": "user=u,passwd=(hidden)",
	} {
		if got := redactConf(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
