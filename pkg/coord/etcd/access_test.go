package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/coordtest"
)

// TestTLS opens a store of a server that requires client certificates, with correct and wrong settings.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := testenv.NewAuthority(t, "ours"), testenv.NewAuthority(t, "others")
	serverCert, serverKey := ours.Issue(t, "server", "127.0.0.1")
	cert, key := ours.Issue(t, "job", "127.0.0.1")
	otherCert, otherKey := others.Issue(t, "job", "127.0.0.1")
	c := startDebian(t, 1, "--cert-file="+serverCert, "--key-file="+serverKey, "--client-cert-auth",
		"--trusted-ca-file="+ours.File)[0]
	plain := shared.endpoint(t)
	for _, tc := range []struct {
		name     string
		endpoint string
		tls      TLS
		want     string // part of the error; empty means no error
		passes   bool   // the error may pass by itself
	}{
		{name: "right", endpoint: c.client, tls: TLS{CA: ours.File, Cert: cert, Key: key}},
		{name: "no certificate", endpoint: c.client, tls: TLS{CA: ours.File}, want: "it ended the TLS handshake: tls: "},
		{
			name: "another authority's certificate", endpoint: c.client,
			tls: TLS{CA: ours.File, Cert: otherCert, Key: otherKey}, want: "it ended the TLS handshake: tls: ",
		},
		{
			name: "another authority for the server", endpoint: c.client, tls: TLS{CA: others.File, Cert: cert, Key: key},
			want: "its certificate is not trusted: x509: certificate signed by unknown authority",
		},
		{
			name: "the machine's authorities", endpoint: c.client, tls: TLS{Cert: cert, Key: key},
			want: "its certificate is not trusted: ",
		},
		{
			name: "https to http", endpoint: "https" + strings.TrimPrefix(plain, "http"), tls: TLS{CA: ours.File},
			want: "perhaps it does not speak TLS", passes: true,
		},
		{
			name: "http to https", endpoint: "http" + strings.TrimPrefix(c.client, "https"), want: "perhaps it requires TLS",
			passes: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute // the server is starting
			if tc.passes {
				timeout = 8 * time.Second
			}
			start := time.Now()
			s, err := Open(t.Context(), Options{
				Endpoints: []string{tc.endpoint}, TLS: tc.tls, Prefix: tc.name,
				DialTimeout: timeout,
			})
			if err == nil {
				defer s.Close(t.Context())
			}
			if took := time.Since(start); !tc.passes && took > timeout*3/4 {
				t.Errorf("Open took %v, though the error is permanent", took)
			}
			var refused *coord.RefusedError
			switch {
			case tc.want == "" && err != nil:
				t.Fatalf("Open: %v", err)
			case tc.want == "":
				mustCommit(t, s, put("k", "v"), owned("own", "v"))
				if err := s.KeepAlive(t.Context()); err != nil {
					t.Errorf("KeepAlive: %v", err)
				}
				followWatch(t, s, "").await(map[string]string{"k": "v", "own": "v"})
			case err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n"):
				t.Errorf("Open returned %v, want one line with %q", err, tc.want)
			case tc.passes && !errors.Is(err, coord.ErrUnavailable), !tc.passes && !errors.As(err, &refused):
				t.Errorf("Open returned %#v; it may pass: %t", err, tc.passes)
			}
		})
	}
}

// protect enables passwords and adds the user job, who may use the keys below elasticrun/.
func protect(t testing.TB, endpoint string) {
	t.Helper()
	cli := waitReady(t, &server{client: endpoint})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := cli.RoleAdd(ctx, "root")
	do(err)
	_, err = cli.UserAdd(ctx, "root", "secret of root")
	do(err)
	_, err = cli.UserGrantRole(ctx, "root", "root")
	do(err)
	_, err = cli.RoleAdd(ctx, "jobs")
	do(err)
	_, err = cli.RoleGrantPermission(ctx, "jobs", "elasticrun/", clientv3.GetPrefixRangeEnd("elasticrun/"),
		clientv3.PermissionType(clientv3.PermReadWrite))
	do(err)
	_, err = cli.UserAdd(ctx, "job", "secret")
	do(err)
	_, err = cli.UserGrantRole(ctx, "job", "jobs")
	do(err)
	_, err = cli.AuthEnable(ctx)
	do(err)
}

// TestUsers opens a store that requires a password.
func TestUsers(t *testing.T) {
	t.Parallel()
	c := startDebian(t, 1)[0]
	protect(t, c.client)
	refusal := func(t *testing.T, err error, want string) {
		t.Helper()
		var refused *coord.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	}
	for _, tc := range []struct{ name, user, password, prefix, open, use string }{
		{name: "right", user: "job", password: "secret"},
		{name: "wrong password", user: "job", password: "guess", open: `user "job" or its password is wrong`},
		{name: "unknown user", user: "nobody", password: "secret", open: `user "nobody" or its password is wrong`},
		{name: "no user", use: "it requires a user and a password"},
		{
			name: "another prefix", user: "job", password: "secret", prefix: "others",
			use: `user "job" may not read and write the keys below "others/"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), Options{
				Endpoints: []string{c.client}, User: tc.user, Password: tc.password,
				Prefix: tc.prefix,
			})
			if tc.open != "" {
				refusal(t, err, tc.open)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(t.Context())
			_, err = s.Commit(t.Context(), nil, []coord.Op{put("k", "v")})
			if tc.use != "" {
				refusal(t, err, tc.use)
				refusal(t, s.Watch(t.Context(), "", func(coord.Batch) error { return nil }), tc.use)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mustCommit(t, s, owned("own", "v"))
			followWatch(t, s, "").await(map[string]string{"k": "v", "own": "v"})
			if err := s.KeepAlive(t.Context()); err != nil {
				t.Errorf("KeepAlive: %v", err)
			}
		})
	}
}

// TestTokens lets the tokens expire that the server gives out for a password.
func TestTokens(t *testing.T) {
	t.Parallel()
	endpoint := startEtcd(t, "--auth-token-ttl=1", "--bcrypt-cost=4").client
	protect(t, endpoint)
	s := openLinked(t, endpoint, Options{User: "job", Password: "secret", TTL: 6 * time.Second})
	coordtest.KeepAlive(t, s)
	f := followWatch(t, s, "")
	f.await(map[string]string{})
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, Username: "root", Password: "secret of root",
		Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for range 3 {
		expired := time.After(2 * time.Second) // the server removes expired tokens every second
		select {
		case <-expired:
		case <-s.Lost():
			t.Fatal(s.Err())
		}
		mustCommit(t, s, put("k", ""), owned("own", ""))
		s.link.reset()
	}
	mustCommit(t, s, put("k", "end"))
	f.await(map[string]string{"k": "end", "own": ""})
	// The loss of a permission ends the watch when it makes its next request.
	if _, err := root.UserRevokeRole(t.Context(), "job", "jobs"); err != nil {
		t.Fatal(err)
	}
	s.link.reset()
	<-f.done
	if !errors.As(f.err, new(*coord.RefusedError)) {
		t.Errorf("the watch ended with %v, want a refusal", f.err)
	}
}
