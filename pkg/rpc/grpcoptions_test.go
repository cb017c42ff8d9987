package rpc

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// nameError returns the error for an invalid worker name.
func nameError(name string) string { return errText(membership.CheckName(name)) }

func TestGRPCOptionsValidate(t *testing.T) {
	some := &tls.Config{MinVersion: tls.VersionTLS13}
	for _, tc := range []struct {
		opts GRPCOptions
		want string
	}{
		{opts: GRPCOptions{}},
		{opts: GRPCOptions{
			Common: Common{Timeout: -1}, Address: "h:1", ServerTLS: some, ClientTLS: some, DeviceCount: -1,
			DeviceMaps: map[string]device.Map{"w": {}}, MaxPayload: 1, LockTimeout: time.Second, KeepAlive: 1, Group: "g",
		}},
		{opts: GRPCOptions{Address: ":1"}, want: `option Address ":1": must be HOST or HOST:PORT, with an IPv6 address in brackets`},
		{opts: GRPCOptions{ServerTLS: some}, want: `option ServerTLS and ClientTLS: give both or neither; a worker both calls and is called`},
		{
			opts: GRPCOptions{TLSFiles: TLSFiles{Cert: "c"}},
			want: `option TLSFiles.Cert is set, but TLSFiles.Key is not: mutual TLS needs a certificate, its key ` +
				`and the CA of all workers (TLSFiles.Cert, TLSFiles.Key, TLSFiles.CA)`,
		},
		{
			opts: GRPCOptions{ServerTLS: some, ClientTLS: some, TLSFiles: TLSFiles{Cert: "c", Key: "k", CA: "a"}},
			want: `option TLSFiles: give either files or ServerTLS and ClientTLS`,
		},
		{opts: GRPCOptions{MaxPayload: -1}, want: `option MaxPayload -1: must be from 1 to 2146435072 bytes, or 0 for 67108864`},
		{opts: GRPCOptions{LockTimeout: -time.Second}, want: `option LockTimeout -1s: must be 100ms or more, or 0 for 5s`},
		{opts: GRPCOptions{KeepAlive: -time.Second}, want: `option KeepAlive -1s: must not be negative; 0 means the default`},
		{opts: GRPCOptions{Group: "a b"}, want: `option Group "a b": must have the form of a worker name: ` + nameError("a b")},
		{
			opts: GRPCOptions{DeviceMaps: map[string]device.Map{"b/": nil, "a/": nil}},
			want: `option DeviceMaps: ` + nameError("a/") + "\n" + `option DeviceMaps: ` + nameError("b/"),
		},
	} {
		if got := errText(tc.opts.Validate()); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

// Options have priority over the environment.
func TestGRPCOptionsWithEnvironment(t *testing.T) {
	files := TLSFiles{Cert: "c", Key: "k", CA: "a"}
	env := Environment{GPUCount: 4, Address: "env:1", TLS: files, MaxPayload: 100}
	own := tls.Config{MinVersion: tls.VersionTLS13}
	for _, tc := range []struct{ opts, want *GRPCOptions }{
		{opts: nil, want: &GRPCOptions{Address: "env:1", DeviceCount: 4, MaxPayload: 100, TLSFiles: files}},
		{opts: &GRPCOptions{Group: "g"}, want: &GRPCOptions{Group: "g", Address: "env:1", DeviceCount: 4, MaxPayload: 100, TLSFiles: files}},
		{
			opts: &GRPCOptions{Address: "own:1", DeviceCount: -1, MaxPayload: 1, ServerTLS: &own, ClientTLS: &own},
			want: &GRPCOptions{Address: "own:1", DeviceCount: -1, MaxPayload: 1, ServerTLS: &own, ClientTLS: &own},
		},
	} {
		got := tc.opts.WithEnvironment(env)
		if diff := cmp.Diff(BackendOptions(tc.want), got, cmpopts.IgnoreUnexported(tls.Config{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if (*GRPCOptions)(nil).Base() != (Common{}) || (&GRPCOptions{Common: Common{Timeout: 1}}).Base().Timeout != 1 {
		t.Error("Base")
	}
}
