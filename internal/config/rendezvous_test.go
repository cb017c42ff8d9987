package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettle(t *testing.T) {
	const one, two = 1, 2
	tests := []struct {
		name string
		in   rendezvousFlags
		want rendezvous
	}{
		{"nothing given", rendezvousFlags{MaxNodes: one, MasterPort: -1}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"own run id", rendezvousFlags{MaxNodes: one, MasterPort: -1, RunID: "job"}, rendezvous{"c10d", "localhost:0", "job", "127.0.0.1", 0}},
		{"the run id none", rendezvousFlags{MaxNodes: one, MasterPort: -1, RunID: "none"}, rendezvous{"c10d", "localhost:0", "none", "127.0.0.1", 0}},
		{"master port", rendezvousFlags{MaxNodes: one, MasterPort: 29511}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 29511}},
		{"master address", rendezvousFlags{MaxNodes: one, MasterPort: -1, MasterAddr: "n1"}, rendezvous{"c10d", "localhost:0", "fresh", "n1", 0}},
		{"master address and port", rendezvousFlags{MaxNodes: one, MasterPort: 1, MasterAddr: "::1"}, rendezvous{"c10d", "localhost:0", "fresh", "::1", 1}},
		{"master port 0", rendezvousFlags{MaxNodes: one, MasterPort: 0}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"node rank", rendezvousFlags{MaxNodes: one, MasterPort: -1, NodeRankGiven: true}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"endpoint", rendezvousFlags{MaxNodes: one, MasterPort: -1, Endpoint: "h:1"}, rendezvous{"c10d", "h:1", "fresh", "127.0.0.1", 0}},
		{"local address", rendezvousFlags{MaxNodes: one, MasterPort: -1, LocalAddr: "10.0.0.1"}, rendezvous{"c10d", "localhost:0", "fresh", "10.0.0.1", 0}},
		{"local and master address", rendezvousFlags{MaxNodes: one, MasterPort: -1, LocalAddr: "10.0.0.1", MasterAddr: "m"}, rendezvous{"c10d", "localhost:0", "fresh", "m", 0}},

		{"standalone", rendezvousFlags{Standalone: true, MaxNodes: one, MasterPort: -1}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{
			"standalone beats all",
			rendezvousFlags{Standalone: true, MaxNodes: one, Backend: "static", Endpoint: "h:1", RunID: "job", MasterAddr: "m", MasterPort: 2},
			rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0},
		},

		{"c10d", rendezvousFlags{MaxNodes: one, Backend: "c10d", MasterPort: -1}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"c10d, endpoint", rendezvousFlags{MaxNodes: one, Backend: "c10d", Endpoint: "localhost", MasterPort: -1}, rendezvous{"c10d", "localhost", "fresh", "127.0.0.1", 0}},
		{"c10d ignores the master port", rendezvousFlags{MaxNodes: one, Backend: "c10d", MasterPort: 2, MasterAddr: "m"}, rendezvous{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}},
		{"another backend", rendezvousFlags{MaxNodes: one, Backend: "etcd", MasterPort: -1}, rendezvous{"etcd", "", "fresh", "127.0.0.1", 0}},

		{"static", rendezvousFlags{MaxNodes: one, Backend: "static", MasterPort: -1}, rendezvous{"static", "127.0.0.1:0", "fresh", "127.0.0.1", 0}},
		{"static, port", rendezvousFlags{MaxNodes: one, Backend: "static", MasterPort: 5}, rendezvous{"static", "127.0.0.1:5", "fresh", "127.0.0.1", 5}},
		{"static, IPv6", rendezvousFlags{MaxNodes: one, Backend: "static", MasterAddr: "::1", MasterPort: 5}, rendezvous{"static", "[::1]:5", "fresh", "::1", 5}},
		{"static, endpoint", rendezvousFlags{MaxNodes: one, Backend: "static", Endpoint: "[::1]:7", MasterAddr: "m", MasterPort: 5}, rendezvous{"static", "[::1]:7", "fresh", "::1", 7}},

		{"two nodes", rendezvousFlags{MaxNodes: two, Endpoint: "h:1", MasterPort: -1}, rendezvous{"c10d", "h:1", "none", "", 0}},
		{"two nodes, node rank", rendezvousFlags{MaxNodes: two, NodeRankGiven: true, MasterPort: -1}, rendezvous{"static", "127.0.0.1:29500", "none", "127.0.0.1", 29500}},
		{"two nodes, master address", rendezvousFlags{MaxNodes: two, MasterAddr: "m", MasterPort: -1}, rendezvous{"static", "m:29500", "none", "m", 29500}},
		{"two nodes, master port", rendezvousFlags{MaxNodes: two, MasterPort: 3}, rendezvous{"static", "127.0.0.1:3", "none", "127.0.0.1", 3}},
		{"two nodes, c10d with a node rank", rendezvousFlags{MaxNodes: two, Backend: "c10d", NodeRankGiven: true, Endpoint: "h", MasterPort: 3}, rendezvous{"c10d", "h", "none", "", 0}},
		{"two nodes, static", rendezvousFlags{MaxNodes: two, Backend: "static", MasterPort: -1, RunID: "job"}, rendezvous{"static", "127.0.0.1:29500", "job", "127.0.0.1", 29500}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := settle(tt.in, func() string { return "fresh" })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRendezvousWarnings(t *testing.T) {
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"--standalone"}, nil},
		{[]string{"--master-addr=m", "--master-port=1"}, nil},
		{[]string{"--node-rank=0"}, nil},
		{[]string{"--node-rank=3"}, []string{"--node-rank=3: has no effect: the number of nodes is 1"}},
		{[]string{"--standalone", "--rdzv-endpoint=not/checked", "--master-port=1", "--rdzv-id=x"}, []string{
			"--rdzv-endpoint=not/checked: has no effect with --standalone",
			"--rdzv-id=x: has no effect with --standalone",
			"--master-port=1: has no effect with --standalone",
		}},
		{[]string{"--rdzv-backend=c10d", "--master-addr=m"}, []string{"--master-addr=m: has no effect with the c10d backend"}},
		{[]string{"--rdzv-backend=static", "--rdzv-endpoint=h:1", "--master-port=2"}, []string{"--master-port=2: has no effect with --rdzv-endpoint"}},
		{[]string{"--rdzv-conf=timeout=120"}, []string{"--rdzv-conf=timeout=120: timeout has no effect with the c10d backend"}},
		{[]string{"--rdzv-backend=etcd", "--rdzv-endpoint=a,b", "--rdzv-conf=own=1"}, nil},
	}
	for _, tt := range tests {
		c, err := resolveArgs(machine{}, append(tt.args, "s.py")...)
		if err != nil {
			t.Errorf("%q: %v", tt.args, err)
			continue
		}
		if diff := cmp.Diff(tt.want, c.Warnings); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}

// TestCheckRendezvousOfSeveralNodes covers what oneMachine keeps a command line
// from reaching.
func TestCheckRendezvousOfSeveralNodes(t *testing.T) {
	tests := []struct {
		name string
		in   rendezvousFlags
		want string
	}{
		{"standalone", rendezvousFlags{Standalone: true, MaxNodes: 2, MasterPort: -1}, "--nnodes=x: --standalone runs on one node"},
		{"static without a port", rendezvousFlags{MaxNodes: 2, MasterPort: 0}, "--master-port=x: several nodes need a port that they all know"},
	}
	for _, tt := range tests {
		r := &reader{settings: map[string]Setting{}}
		for _, f := range Flags() {
			r.settings[f.Name] = Setting{Name: f.Name, Value: "x"}
		}
		new(Config).checkRendezvous(r, tt.in, settle(tt.in, func() string { return "fresh" }))
		if r.err == nil || r.err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, r.err, tt.want)
		}
	}
}

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
		{in: ":29400", err: `"" is not a host name or an address`},
		{in: "a:b:1", err: `"a:b" is not a host name or an address`},
		{in: "http://host:1", err: `"http://host" is not a host name or an address`},
		{in: "[host]:1", err: "brackets must enclose an IPv6 address, such as [::1]"},
		{in: "[127.0.0.1]:1", err: "brackets must enclose an IPv6 address, such as [::1]"},
		{in: "[::1:29400", err: "brackets must enclose an IPv6 address, such as [::1]"},
		{in: "[::1]29400", err: `the port "1]29400" must be a number between 0 and 65535`},
	}
	for _, tt := range tests {
		host, port, err := parseEndpoint(tt.in)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != tt.err || err == nil && (host != tt.host || port != tt.port) {
			t.Errorf("%s: got %q, %d, %q, want %q, %d, %q", tt.in, host, port, message, tt.host, tt.port, tt.err)
		}
	}
}

func TestConf(t *testing.T) {
	tests := []struct {
		backend string
		in      string
		want    map[string]string
		err     string
	}{
		{"c10d", "", map[string]string{}, ""},
		{"c10d", "  ", map[string]string{}, ""},
		{"c10d", "join_timeout=5", map[string]string{"join_timeout": "5"}, ""},
		{"c10d", " join_timeout = 5 , is_host = Yes ", map[string]string{"join_timeout": "5", "is_host": "Yes"}, ""},
		{"c10d", "join_timeout=5,join_timeout=6", map[string]string{"join_timeout": "6"}, ""},
		{"c10d", "store_type=file", map[string]string{"store_type": "file"}, ""},
		{"etcd", "any=a=b", map[string]string{"any": "a=b"}, ""},
		{"c10d", "join_timeout=0", nil, "join_timeout=0 must be a whole number, at least 1"},
		{"c10d", "join_timeout=1.5", nil, "join_timeout=1.5 must be a whole number, at least 1"},
		{"static", "timeout=-1", nil, "timeout=-1 must be a whole number, at least 1"},
		{"c10d", "is_host=maybe", nil, "is_host=maybe must be true or false"},
		{"c10d", "store_type=http", nil, "store_type=http must be one of tcp, file"},
		{"c10d", "join_timeut=5", nil, "unknown option join_timeut: there are join_timeout, last_call_timeout, close_timeout, heartbeat_timeout, keep_alive_interval, keep_alive_max_attempt, read_timeout, store_type, is_host, timeout"},
		{"c10d", "a=b,", nil, `"" has no key: write KEY=VALUE,KEY=VALUE`},
		{"c10d", "=b", nil, `"=b" has no key: write KEY=VALUE,KEY=VALUE`},
		{"c10d", "join_timeout=", nil, "join_timeout has no value: write join_timeout=VALUE"},
	}
	for _, tt := range tests {
		got, err := parseConf(tt.in)
		if err == nil {
			_, err = checkConf(tt.backend, got)
		}
		message := ""
		if err != nil {
			got, message = nil, err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || message != tt.err {
			t.Errorf("%s %q: error %q, want %q (-want +got):\n%s", tt.backend, tt.in, message, tt.err, diff)
		}
	}
}
