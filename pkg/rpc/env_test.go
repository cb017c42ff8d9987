package rpc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// environ returns a lookup function of a map.
func environ(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func TestReadEnvironment(t *testing.T) {
	const address = ": must be HOST or HOST:PORT, with an IPv6 address in brackets"
	const files = ": mutual TLS needs a certificate, its key and the CA of all workers " +
		"(ELASTICRUN_RPC_CERT, ELASTICRUN_RPC_KEY, ELASTICRUN_RPC_CA)"
	const gpus = ": must be a whole number of GPUs, 0 or more; elasticrun sets it if it is unset"
	type vars map[string]string
	for _, tc := range []struct {
		vars vars
		want Environment
		err  string
	}{
		{vars: nil},
		{vars: vars{envGPUCount: "", envAddr: "", envCert: "", envMaxPayload: ""}},
		{vars: vars{envGPUCount: "8", envMaxPayload: "1024"}, want: Environment{GPUCount: 8, MaxPayload: 1024}},
		{vars: vars{envGPUCount: "0"}},
		{vars: vars{envGPUCount: "two"}, err: `ELASTICRUN_GPU_COUNT="two"` + gpus},
		{vars: vars{envGPUCount: "-1"}, err: `ELASTICRUN_GPU_COUNT="-1"` + gpus},
		{vars: vars{envMaxPayload: "0"}, err: `ELASTICRUN_RPC_MAX_PAYLOAD="0": must be a whole number of bytes from 1 to 2146435072`},
		{vars: vars{envMaxPayload: "64MiB"}, err: `ELASTICRUN_RPC_MAX_PAYLOAD="64MiB": must be a whole number of bytes from 1 to 2146435072`},
		{vars: vars{envMaxPayload: "9999999999"}, err: `ELASTICRUN_RPC_MAX_PAYLOAD="9999999999": must be a whole number of bytes from 1 to 2146435072`},

		{vars: vars{envRestarts: "2", envNodes: "1"}, want: Environment{Group: "rpc-attempt2"}},
		{vars: vars{envRestarts: "0", envNodes: "1"}},
		{vars: vars{envRestarts: "2", envNodes: "1", envRound: "3"}}, // elasticrun uses a new store
		{vars: vars{envRestarts: "2", envNodes: "2"}},                // nodes may have different counts

		{vars: vars{envAddr: "node1"}, want: Environment{Address: "node1:0"}},
		{vars: vars{envAddr: "10.0.0.1:0"}, want: Environment{Address: "10.0.0.1:0"}},
		{vars: vars{envAddr: "node1:080"}, want: Environment{Address: "node1:80"}},
		{vars: vars{envAddr: "fe80::1%eth0"}, want: Environment{Address: "[fe80::1%eth0]:0"}},
		{vars: vars{envAddr: "[::1]"}, want: Environment{Address: "[::1]:0"}},
		{vars: vars{envAddr: "[::1]:5"}, want: Environment{Address: "[::1]:5"}},
		{vars: vars{envAddr: ":5"}, err: `ELASTICRUN_RPC_ADDR=":5"` + address},
		{vars: vars{envAddr: "[]:5"}, err: `ELASTICRUN_RPC_ADDR="[]:5"` + address},
		{vars: vars{envAddr: "a:b:c"}, err: `ELASTICRUN_RPC_ADDR="a:b:c"` + address},
		{vars: vars{envAddr: "http://h:1"}, err: `ELASTICRUN_RPC_ADDR="http://h:1"` + address},
		{vars: vars{envAddr: "a b"}, err: `ELASTICRUN_RPC_ADDR="a b"` + address},
		{vars: vars{envAddr: "h:70000"}, err: `ELASTICRUN_RPC_ADDR="h:70000": port "70000" must be a whole number from 0 (any free port) to 65535`},
		{vars: vars{envAddr: "h:"}, err: `ELASTICRUN_RPC_ADDR="h:": port "" must be a whole number from 0 (any free port) to 65535`},
		{
			vars: vars{envAddr: "0.0.0.0:5"},
			err:  `ELASTICRUN_RPC_ADDR="0.0.0.0:5": 0.0.0.0 means all addresses of the host, but other workers need one address to call; use an address of this host`,
		},

		{
			vars: vars{envCert: "c", envKey: "k", envCA: "a", envServerName: "n"},
			want: Environment{TLS: TLSFiles{Cert: "c", Key: "k", CA: "a", ServerName: "n"}},
		},
		{vars: vars{envCert: "c"}, err: "ELASTICRUN_RPC_CERT is set, but ELASTICRUN_RPC_KEY is not" + files},
		{vars: vars{envCert: "c", envKey: "k"}, err: "ELASTICRUN_RPC_CERT is set, but ELASTICRUN_RPC_CA is not" + files},
		{vars: vars{envKey: "k", envCA: "a"}, err: "ELASTICRUN_RPC_KEY is set, but ELASTICRUN_RPC_CERT is not" + files},
		{vars: vars{envServerName: "n"}, err: "ELASTICRUN_RPC_SERVER_NAME is set, but ELASTICRUN_RPC_CERT is not" + files},
		{
			vars: vars{envGPUCount: "x", envCA: "a"},
			err: `ELASTICRUN_GPU_COUNT="x"` + gpus + "\n" +
				"ELASTICRUN_RPC_CA is set, but ELASTICRUN_RPC_CERT is not" + files,
		},
	} {
		got, err := ReadEnvironment(environ(tc.vars))
		if text := errText(err); text != tc.err {
			t.Errorf("%v:\n got %s\nwant %s", tc.vars, text, tc.err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.vars, diff)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
