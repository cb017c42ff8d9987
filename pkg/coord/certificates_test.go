package coord

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord/certfiles"
)

// site opens certificate files.
func site(t testing.TB, files certfiles.Files) *certfiles.Set {
	t.Helper()
	if !files.Given() {
		return nil
	}
	s, err := certfiles.Open(files, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCertificates connects agents and stores with and without certificate files, of the right or of another CA. Each
// side that refuses says why in one line, and so does the other side.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ours, others := testenv.NewAuthority(t, "ours"), testenv.NewAuthority(t, "others")
	pair := func(cert, key string) certfiles.Files { return certfiles.Files{Cert: cert, Key: key} }
	good, foreign := pair(ours.Issue(t, "node")), pair(others.Issue(t, "foreign"))
	named := pair(ours.Issue(t, "named", "store.example", "10.0.0.1"))
	dir := t.TempDir()
	serversOnly := pair(filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
	ours.IssueAt(t, serversOnly.Cert, serversOnly.Key, "servers", func(c *x509.Certificate) {
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	with := func(f certfiles.Files, a *testenv.Authority) certfiles.Files {
		f.CA = a.File
		return f
	}
	caOnly := with(certfiles.Files{}, ours)
	const noCertificate = "it demands a certificate and this side has none: give ssl_cert and ssl_cert_key in " +
		"--rdzv-conf"
	for _, tc := range []struct {
		name          string
		store, agent  certfiles.Files
		serverName    string
		secret        string
		agentSays     string // empty: it gets a session
		fatal, passes bool   // whether the error is a RefusedError, and whether the agent should try again
		storeSays     string // what the store logs; empty: nothing
	}{
		{name: "both", store: with(good, ours), agent: with(good, ours)},
		{name: "both and a secret", store: with(good, ours), agent: with(good, ours), secret: "secret"},
		{name: "store's alone", store: good},
		{name: "store's, verified", store: good, agent: caOnly},
		{name: "agent's alone", agent: good},
		{name: "agent's, verified", store: caOnly, agent: good},
		{name: "by name", store: with(named, ours), agent: with(good, ours), serverName: "store.example"},
		{name: "by name with a dot", store: with(named, ours), agent: with(good, ours), serverName: "store.example."},
		{name: "by address", store: with(named, ours), agent: with(good, ours), serverName: "10.0.0.1"},
		{
			name: "wrong name", store: with(named, ours), agent: with(good, ours),
			fatal: true, agentSays: "is not accepted: its certificate is for store.example, 10.0.0.1, not for 127.0.0.1: " +
				"give it one for 127.0.0.1",
			storeSays: "the agent does not accept the store's certificate (bad certificate): the agent's error says why",
		},
		{
			name: "store of another CA", store: with(foreign, ours), agent: with(good, ours),
			fatal: true, agentSays: "is not accepted: no authority of the CA's file has signed its certificate (CN=foreign)",
			storeSays: "the agent does not accept the store's certificate (bad certificate): the agent's error says why",
		},
		{
			name: "store without files", agent: with(good, ours),
			fatal: true, agentSays: "is not accepted: it was given no certificate and has made one itself: give it one of the CA",
			storeSays: "the agent does not accept the store's certificate (bad certificate): the agent's error says why",
		},
		{
			name: "agent without files", store: with(good, ours), agentSays: noCertificate, fatal: true,
			storeSays: "the agent has no certificate and the store demands one: give the agent ssl_cert and ssl_cert_key in " +
				"--rdzv-conf",
		},
		{
			name: "agent that cannot know", store: with(good, ours), secret: "secret", agentSays: noCertificate, passes: true,
			storeSays: "the agent has no certificate and the store demands one",
		},
		{
			name: "agent that knows", store: with(good, ours), agent: caOnly, secret: "secret", agentSays: noCertificate,
			fatal: true, storeSays: "the agent has no certificate and the store demands one",
		},
		{
			name: "agent of another CA", store: with(good, ours), agent: with(foreign, ours), fatal: true,
			agentSays: "it does not accept this agent's certificate (unknown certificate authority): the store's log says why",
			storeSays: "the agent's certificate is not accepted: no authority of the CA's file has signed its certificate " +
				"(CN=foreign)",
		},
		{
			name: "agent with a server's", store: with(good, ours), agent: with(serversOnly, ours), fatal: true,
			agentSays: "it does not accept this agent's certificate (bad certificate): the store's log says why",
			storeSays: "the agent's certificate is not accepted: its certificate is not for this end of a connection",
		},
		{
			name: "agent with the secret's rival", store: with(good, ours), agent: with(good, ours), secret: "other",
			agentSays: "the agent has a shared secret and the store has none", fatal: true, storeSays: "the agent has a shared",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var log testenv.Buffer
			secret := []byte(tc.secret)
			store := ServerOptions{Certificates: site(t, tc.store), Secret: secret, Logger: zerolog.New(&log)}
			if tc.secret == "other" {
				store.Secret = nil
			}
			s, addr := startServer(t, store)
			opts := DialOptions{
				Addr: addr, ServerNames: namesOrNone(tc.serverName), Secret: secret, Certificates: site(t, tc.agent),
			}
			for _, way := range []func() error{
				func() error { c, err := Dial(t.Context(), opts); closeClient(t, c); return err },
				func() error { _, err := Probe(t.Context(), opts); return err },
			} {
				err := way()
				_, fatal := errors.AsType[*RefusedError](err)
				switch {
				case tc.agentSays == "":
					if err != nil {
						t.Fatal(err)
					}
				case err == nil || !strings.Contains(err.Error(), tc.agentSays):
					t.Errorf("the agent says %v, want %q", err, tc.agentSays)
				case fatal != tc.fatal || errors.Is(err, ErrUnavailable) != tc.passes:
					t.Errorf("fatal: %v, passes: %v: %v", fatal, errors.Is(err, ErrUnavailable), err)
				}
			}
			if tc.storeSays != "" {
				await(t, func() bool { return s.Stats().Refused == 2 && strings.Contains(log.String(), tc.storeSays) })
			}
			if got := log.String(); strings.Count(got, "\n") > 1 || tc.storeSays == "" && got != "" {
				t.Errorf("the store logs %s", got)
			}
		})
	}
}

func closeClient(t *testing.T, c *Client) {
	t.Helper()
	if c != nil {
		closeStore(t, c)
	}
}

// await waits until ok returns true.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatal("it did not happen in time")
		case <-time.After(time.Millisecond):
		}
	}
}

// A store and its agents exchange their certificates while they are connected. The CA changes in three steps, as for
// any CA. Nobody loses a session.
func TestCertificatesChange(t *testing.T) {
	t.Parallel()
	before, after := testenv.NewAuthority(t, "before"), testenv.NewAuthority(t, "after")
	dir := t.TempDir()
	files := certfiles.Files{
		Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca"),
	}
	change := func(a *testenv.Authority, trusted ...*testenv.Authority) {
		t.Helper()
		a.IssueAt(t, files.Cert, files.Key, "node", func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		})
		testenv.TrustAt(t, files.CA, trusted...)
	}
	change(before, before)
	_, addr := startServer(t, ServerOptions{Certificates: site(t, files)})
	network := newFaultyNetwork(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
	opts := DialOptions{Addr: addr, Certificates: site(t, files)}
	resuming := opts
	resuming.Conn = network.dial
	long := dial(t, resuming)
	old := opts
	oldCert, oldKey := before.Issue(t, "node")
	old.Certificates = site(t, certfiles.Files{Cert: oldCert, Key: oldKey, CA: before.File})
	for _, step := range []struct {
		change  func()
		wantOld string // the error of an agent that has not noticed the change; empty: it gets a session
	}{
		{change: func() { change(before, before, after) }},
		{change: func() { change(after, before, after) }, wantOld: "no authority of the CA's file has signed"},
		{change: func() { change(after, after) }, wantOld: "no authority of the CA's file has signed"},
	} {
		step.change()
		network.reset()
		if err := long.KeepAlive(t.Context()); err != nil {
			t.Fatal(err)
		}
		dial(t, opts)
		c, err := Dial(t.Context(), old)
		closeClient(t, c)
		if (err == nil) != (step.wantOld == "") || err != nil && !strings.Contains(err.Error(), step.wantOld) {
			t.Errorf("an agent with the old files: %v, want %q", err, step.wantOld)
		}
	}
}

// A refusal that anybody could have sent does not end an agent that requires a proof. Neither a false store's alert nor
// its certificate ends the agent.
func TestFalseStoreEndsNobody(t *testing.T) {
	t.Parallel()
	ours, others := testenv.NewAuthority(t, "ours"), testenv.NewAuthority(t, "others")
	cert, key := ours.Issue(t, "node")
	otherCert, otherKey := others.Issue(t, "node")
	mutual := certfiles.Files{Cert: cert, Key: key, CA: ours.File}
	for _, tc := range []struct {
		name  string
		files certfiles.Files // of store and agent
		false ServerOptions
	}{
		{"its certificate", mutual, ServerOptions{
			Certificates: site(t, certfiles.Files{Cert: otherCert, Key: otherKey}),
		}},
		{"its alert", certfiles.Files{}, ServerOptions{Certificates: site(t, mutual)}},
		{"its alert to a certificate", certfiles.Files{Cert: otherCert, Key: otherKey}, ServerOptions{
			Certificates: site(t, mutual),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			secret := []byte("secret")
			_, addr := startServer(t, ServerOptions{Secret: secret, Certificates: site(t, tc.files)})
			tc.false.Secret = secret
			falseStore, falseAddr := startServer(t, tc.false)
			var mu sync.Mutex
			to := addr
			network := newFaultyNetwork(func(ctx context.Context) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				return new(net.Dialer).DialContext(ctx, "tcp", to)
			})
			lead := func(where string) {
				mu.Lock()
				to = where
				mu.Unlock()
				network.reset()
			}
			c := dial(t, DialOptions{
				Addr: addr, Conn: network.dial, Secret: secret, Certificates: site(t, tc.files), TTL: time.Minute,
			})
			lead(falseAddr)
			await(t, func() bool { return falseStore.Stats().Refused > 0 })
			lead(addr)
			if err := c.KeepAlive(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An agent sees the store's alert even if its own first write fails because the store has already closed.
func TestAlertAfterFailedWrite(t *testing.T) {
	t.Parallel()
	ours := testenv.NewAuthority(t, "ours")
	cert, key := ours.Issue(t, "node")
	_, addr := startServer(t, ServerOptions{Certificates: site(t, certfiles.Files{Cert: cert, Key: key, CA: ours.File})})
	_, err := Dial(t.Context(), DialOptions{Addr: addr, Conn: func(ctx context.Context) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return &slowConn{Conn: nc}, err
	}})
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != ReasonCertificate {
		t.Errorf("got %v", err)
	}
}

// slowConn fails its third write, which is the hello, as if the peer had closed.
type slowConn struct {
	net.Conn
	writes int
}

func (c *slowConn) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 3 {
		return 0, &net.OpError{Op: "write", Err: io.ErrClosedPipe}
	}
	return c.Conn.Write(b)
}

func namesOrNone(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// TestVerifyStore checks which names of a certificate are accepted, and that its authority always counts.
func TestVerifyStore(t *testing.T) {
	ours, others := testenv.NewAuthority(t, "ours"), testenv.NewAuthority(t, "others")
	filesOf := func(a *testenv.Authority, host string) certfiles.Files {
		cert, key := a.Issue(t, host, host)
		ca := filepath.Join(t.TempDir(), "ca.pem")
		testenv.TrustAt(t, ca, ours)
		return certfiles.Files{Cert: cert, Key: key, CA: ca}
	}
	for _, tt := range []struct {
		store   certfiles.Files
		names   []string
		anyName bool
		want    string
	}{
		{store: filesOf(ours, "node1"), names: []string{"node0", "node1."}},
		{store: filesOf(ours, "node1"), names: []string{"node0", "node2"}, want: "is for node1, not for node0"},
		{store: filesOf(ours, "node1"), names: []string{"node0"}, anyName: true},
		{store: filesOf(ours, "node1"), want: "is for node1, not for 127.0.0.1"},
		{store: filesOf(others, "node1"), names: []string{"node1"}, anyName: true, want: "is not accepted"},
	} {
		_, addr := startServer(t, ServerOptions{Certificates: site(t, tt.store), Logger: zerolog.Nop()})
		client := filesOf(ours, "agent")
		opts := DialOptions{Addr: addr, ServerNames: tt.names, AnyName: tt.anyName, Certificates: site(t, client)}
		_, err := Probe(t.Context(), opts)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, any: %v: %v, want %q", tt.names, tt.anyName, err, tt.want)
		}
	}
}
