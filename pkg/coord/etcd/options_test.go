package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestOpenOptions opens stores with options that are wrong without asking a server.
func TestOpenOptions(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plain, secure := []string{"http://127.0.0.1:1"}, []string{"https://127.0.0.1:1"}
	for _, tc := range []struct {
		name    string
		options Options
		want    string
	}{
		{name: "none", want: "etcd: no endpoint is given"},
		{
			name: "user", options: Options{Endpoints: plain, User: "job"},
			want: `etcd: user "job": give both a user and a password, or neither`,
		},
		{
			name: "both", options: Options{Endpoints: append(plain, secure...)},
			want: `etcd: endpoints ["http://127.0.0.1:1" "https://127.0.0.1:1"]: all must use the same scheme`,
		},
		{
			name: "not secure", options: Options{Endpoints: plain, TLS: TLS{CA: empty}},
			want: "etcd: certificates are given, but the endpoint http://127.0.0.1:1 is not https: set the protocol to https",
		},
		{
			name: "no file", options: Options{Endpoints: secure, TLS: TLS{CA: dir + "/none"}},
			want: "etcd: read the CA's certificates: open " + dir + "/none: no such file or directory",
		},
		{
			name: "no PEM", options: Options{Endpoints: secure, TLS: TLS{CA: empty}},
			want: "etcd: " + empty + " holds no certificate in PEM form",
		},
		{
			name: "no key", options: Options{Endpoints: secure, TLS: TLS{Cert: empty}},
			want: fmt.Sprintf(`etcd: certificate %q, key "": give both, or neither`, empty),
		},
		{
			name: "no certificate", options: Options{Endpoints: secure, TLS: TLS{Cert: empty, Key: empty}},
			want: fmt.Sprintf("etcd: read certificate %s and key %s: tls: failed to find any PEM data "+
				"in certificate input", empty, empty),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Open(t.Context(), tc.options)
			if diff := cmp.Diff(tc.want, errorText(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	for _, tc := range []struct{ ttl, want, op time.Duration }{
		{ttl: 0, want: 15 * time.Second, op: 5 * time.Second},
		{ttl: time.Millisecond, want: 2 * time.Second, op: 2 * time.Second / 3},
		{ttl: 3001 * time.Millisecond, want: 4 * time.Second, op: 4 * time.Second / 3},
		{ttl: time.Minute, want: time.Minute, op: 5 * time.Second},
	} {
		o, err := Options{Endpoints: []string{"http://db:1"}, TTL: tc.ttl, Prefix: "/a/"}.withDefaults()
		if err != nil || o.TTL != tc.want || o.OpTimeout != tc.op || o.Prefix != "/a" {
			t.Errorf("TTL %v became %v, with requests of %v, below %q (%v); want %v, %v", tc.ttl, o.TTL, o.OpTimeout, o.Prefix,
				err, tc.want, tc.op)
		}
	}
}

// TestOpenUnreachable opens stores where nothing answers.
func TestOpenUnreachable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	for _, tc := range []struct{ name, address, want string }{
		{name: "refused", address: freeAddresses(t, 1)[0], want: ": nobody listens there"},
		{name: "silent", address: silent.Addr().String(), want: " in time"},
		{name: "no such host", address: "nowhere.invalid:2379", want: `: the name "nowhere.invalid" is not known to the name service`},
		{
			name: "a web server", address: strings.TrimPrefix(web.URL, "http://"),
			want: ": another server than etcd has this port: it does not speak HTTP/2",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := Open(t.Context(), Options{Endpoints: []string{"http://" + tc.address}, DialTimeout: 4 * time.Second})
			want := "begin a session: the job's store is not available: no answer from etcd at " + tc.address + tc.want +
				"; check the endpoint, and that etcd runs there"
			if !errors.Is(err, coord.ErrUnavailable) || errorText(err) != want {
				t.Errorf("Open returned\n%v, want\n%s", err, want)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("Open took %v", took)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, user := range []string{"", "job"} {
			_, err := Open(ctx, Options{Endpoints: []string{"http://" + silent.Addr().String()}, User: user, Password: user})
			if !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("Open returned %v, want %v", err, context.Canceled)
			}
		}
	})
}
