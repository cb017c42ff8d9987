package rdzvconf

import "testing"

func TestParseEndpoint(t *testing.T) {
	tests := []struct {
		in   string
		host string
		port int
		err  string
	}{
		{in: "localhost", host: "localhost", port: -1},
		{in: "localhost:0", host: "localhost", port: 0},
		{in: "node-1.cluster_a:29400", host: "node-1.cluster_a", port: 29400},
		{in: "10.0.0.1:65535", host: "10.0.0.1", port: 65535},
		{in: "[::1]", host: "::1", port: -1},
		{in: "[fe80::1%eth0]:29400", host: "fe80::1%eth0", port: 29400},
		{in: "::1", host: "::1", port: -1},
		{in: "fe80::1:29400", host: "fe80::1", port: 29400}, // 29400 is no group of an address
		{in: "host:65536", err: "the port 65536 must be between 0 and 65535"},
		{in: "host:123456", err: `the port "123456" must be a number between 0 and 65535`},
		{in: "host:-1", err: `the port "-1" must be a number between 0 and 65535`},
		{in: "host:", err: `the port "" must be a number between 0 and 65535`},
		{in: ":29400", err: "29400 is a port without a host: write HOST:29400, such as 127.0.0.1:29400"},
		{in: ":port", err: `the port "port" must be a number between 0 and 65535`},
		{in: "etcd://host", err: `"etcd://host" is a URL: write HOST:PORT only`},
		{in: "host:29400/job", err: `"host:29400/job" has a path: write HOST:PORT only`},
		{in: "host/job", err: `"host/job" has a path: write HOST:PORT only`},
		{in: "a:b:1", err: `"a:b" is not a host name or an address`},
		{in: "29400", err: "29400 is a port without a host: write HOST:29400, such as 127.0.0.1:29400"},
		{in: "http://host:1", err: `"http://host" is a URL: write HOST:PORT only`},
		{in: "[host]:1", err: "brackets must enclose an IPv6 address, such as [::1]"},
		{in: "[127.0.0.1]:1", err: "brackets must enclose an IPv6 address, such as [::1]"},
		{in: "[::1:29400", err: "brackets must enclose an IPv6 address, such as [::1]"},
		{in: "[::1]29400", err: `the port "1]29400" must be a number between 0 and 65535`},
	}
	for _, tt := range tests {
		host, port, err := ParseEndpoint(tt.in)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != tt.err || err == nil && (host != tt.host || port != tt.port) {
			t.Errorf("%s: got %q, %d, %q, want %q, %d, %q", tt.in, host, port, message, tt.host, tt.port, tt.err)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "localhost.": true, "127.0.0.1": true, "127.8.9.1": true, "::1": true,
		"::ffff:127.0.0.1": true, "localhost..": false, "localhost.example": false, "0.0.0.0": false, "10.0.0.1": false,
		"::ffff:10.0.0.1": false, "node": false, "": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}
