package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/internal/exitcode"
)

func TestRendezvousPoint(t *testing.T) {
	type (
		in    = rendezvousFlags
		point = rendezvousPoint
	)
	alone := point{"c10d", "localhost:0", "fresh", "127.0.0.1", 0}
	tests := []struct {
		name string
		in   in
		want point
	}{
		{"nothing given", in{MaxNodes: 1, MasterPort: -1}, alone},
		{"own run id", in{MaxNodes: 1, MasterPort: -1, RunID: "job"}, point{"c10d", "localhost:0", "job", "127.0.0.1", 0}},
		{
			"the run id none",
			in{MaxNodes: 1, MasterPort: -1, RunID: "none"},
			point{"c10d", "localhost:0", "none", "127.0.0.1", 0},
		},
		{"master port", in{MaxNodes: 1, MasterPort: 29511}, point{"c10d", "localhost:0", "fresh", "127.0.0.1", 29511}},
		{
			"master address",
			in{MaxNodes: 1, MasterPort: -1, MasterAddr: "n1"},
			point{"c10d", "localhost:0", "fresh", "n1", 0},
		},
		{
			"master address and port",
			in{MaxNodes: 1, MasterPort: 1, MasterAddr: "::1"},
			point{"c10d", "localhost:0", "fresh", "::1", 1},
		},
		{"master port 0", in{MaxNodes: 1, MasterPort: 0}, alone},
		{"node rank", in{MaxNodes: 1, MasterPort: -1, NodeRankGiven: true}, alone},
		{"endpoint", in{MaxNodes: 1, MasterPort: -1, Endpoint: "h:1"}, point{"c10d", "h:1", "fresh", "127.0.0.1", 0}},
		{
			"local address",
			in{MaxNodes: 1, MasterPort: -1, LocalAddr: "10.0.0.1"},
			point{"c10d", "localhost:0", "fresh", "10.0.0.1", 0},
		},
		{
			"local and master address",
			in{MaxNodes: 1, MasterPort: -1, LocalAddr: "10.0.0.1", MasterAddr: "m"},
			point{"c10d", "localhost:0", "fresh", "m", 0},
		},

		{"standalone", in{Standalone: true, MaxNodes: 1, MasterPort: -1}, alone},
		{
			"standalone beats all",
			in{Standalone: true, MaxNodes: 1, Backend: "static", Endpoint: "h:1", RunID: "job", MasterAddr: "m", MasterPort: 2},
			alone,
		},

		{"c10d", in{MaxNodes: 1, Backend: "c10d", MasterPort: -1}, alone},
		{
			"c10d, endpoint",
			in{MaxNodes: 1, Backend: "c10d", Endpoint: "localhost", MasterPort: -1},
			point{"c10d", "localhost", "fresh", "127.0.0.1", 0},
		},
		{"c10d ignores the master port", in{MaxNodes: 1, Backend: "c10d", MasterPort: 2, MasterAddr: "m"}, alone},
		{"another backend", in{MaxNodes: 1, Backend: "etcd", MasterPort: -1}, point{"etcd", "", "fresh", "127.0.0.1", 0}},

		{
			"static",
			in{MaxNodes: 1, Backend: "static", MasterPort: -1},
			point{"static", "127.0.0.1:0", "fresh", "127.0.0.1", 0},
		},
		{
			"static, port",
			in{MaxNodes: 1, Backend: "static", MasterPort: 5},
			point{"static", "127.0.0.1:5", "fresh", "127.0.0.1", 5},
		},
		{
			"static, IPv6",
			in{MaxNodes: 1, Backend: "static", MasterAddr: "::1", MasterPort: 5},
			point{"static", "[::1]:5", "fresh", "::1", 5},
		},
		{
			"static, endpoint",
			in{MaxNodes: 1, Backend: "static", Endpoint: "[::1]:7", MasterAddr: "m", MasterPort: 5},
			point{"static", "[::1]:7", "fresh", "::1", 7},
		},

		{"two nodes", in{MaxNodes: 2, Endpoint: "h:1", MasterPort: -1}, point{"c10d", "h:1", "none", "", 0}},
		{
			"two nodes, node rank",
			in{MaxNodes: 2, NodeRankGiven: true, MasterPort: -1},
			point{"static", "127.0.0.1:29500", "none", "127.0.0.1", 29500},
		},
		{
			"two nodes, master address",
			in{MaxNodes: 2, MasterAddr: "m", MasterPort: -1},
			point{"static", "m:29500", "none", "m", 29500},
		},
		{"two nodes, master port", in{MaxNodes: 2, MasterPort: 3}, point{"static", "127.0.0.1:3", "none", "127.0.0.1", 3}},
		{
			"two nodes, c10d with a node rank",
			in{MaxNodes: 2, Backend: "c10d", NodeRankGiven: true, Endpoint: "h", MasterPort: 3},
			point{"c10d", "h", "none", "", 0},
		},
		{
			"two nodes, static",
			in{MaxNodes: 2, Backend: "static", MasterPort: -1, RunID: "job"},
			point{"static", "127.0.0.1:29500", "job", "127.0.0.1", 29500},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.in.point(func() string { return "fresh" })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRendezvousWarnings(t *testing.T) {
	clean(t)
	write(t, "p", "etcd's")
	chmod(t, "p", 0o600)
	const loop = " means another machine on each node: only agents of one machine can meet there"
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"--standalone"}, nil},
		{[]string{"--master-addr=m", "--master-port=1"}, nil},
		{[]string{"--node-rank=0"}, nil},
		{[]string{"--node-rank=3"}, []string{"--node-rank=3: has no effect: the number of nodes is 1"}},
		{[]string{"--nnodes=2:4", "--rdzv-endpoint=h", "--rdzv-backend=c10d", "--node-rank=7"}, nil}, // a spare may have any
		{[]string{"--standalone", "--rdzv-endpoint=not/checked", "--master-port=1", "--rdzv-id=x"}, []string{
			"--rdzv-endpoint=not/checked: has no effect with --standalone",
			"--rdzv-id=x: has no effect with --standalone",
			"--master-port=1: has no effect with --standalone",
		}},
		{
			[]string{"--rdzv-backend=c10d", "--master-addr=m"},
			[]string{"--master-addr=m: has no effect with the c10d backend"},
		},
		{
			[]string{"--rdzv-backend=static", "--rdzv-endpoint=h:1", "--master-port=2"},
			[]string{"--master-port=2: has no effect with --rdzv-endpoint"},
		},
		{[]string{"--rdzv-conf=timeout=120"}, nil}, // torchrun takes no notice of it
		{
			[]string{"--rdzv-conf=etcd_prefix=x"},
			[]string{"--rdzv-conf=etcd_prefix=x: etcd_prefix has no effect with the c10d backend"},
		},
		{[]string{"--rdzv-backend=own", "--rdzv-endpoint=a/b", "--rdzv-conf=own=1"}, nil},
		{
			[]string{"--worker-store-port=1-2"},
			[]string{"--worker-store-port=1-2: has no effect on one node; use --master-port"},
		},

		{[]string{"--nnodes=2", "--rdzv-endpoint=LOCALHOST."}, []string{"--rdzv-endpoint=LOCALHOST.: LOCALHOST." + loop}},
		{[]string{"--nnodes=2", "--rdzv-endpoint=localhost"}, []string{"--rdzv-endpoint=localhost: localhost" + loop}},
		{[]string{"--nnodes=2", "--rdzv-endpoint=[::1]:5"}, []string{"--rdzv-endpoint=[::1]:5: ::1" + loop}},
		{[]string{"--nnodes=3", "--rdzv-endpoint=::1", "--rdzv-conf=voters=3"}, []string{
			"--rdzv-conf=voters=3: voters=3 has no effect: the endpoint ::1 is for agents of one machine, and one of them keeps " +
				"the job's store",
			"--rdzv-endpoint=::1: ::1" + loop,
		}},
		{[]string{"--nnodes=3", "--rdzv-endpoint=local", "--rdzv-id=a", "--rdzv-conf=voters=5"}, []string{
			"--rdzv-conf=voters=5: voters=5 has no effect: the endpoint local is for agents of one machine, and one of them keeps " +
				"the job's store",
		}},
		{
			[]string{"--nnodes=3", "--rdzv-endpoint=::1", "--rdzv-conf=voters=3,is_host=false"}, // a tunnel leads to the host
			[]string{"--rdzv-endpoint=::1: ::1" + loop},
		},
		{[]string{"--nnodes=3", "--rdzv-endpoint=local", "--rdzv-id=a", "--rdzv-conf=voters=1"}, nil},
		{
			[]string{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=a", "--rdzv-endpoint=h,127.0.0.1:5"},
			[]string{"--rdzv-endpoint=h,127.0.0.1:5: 127.0.0.1" + loop},
		},
		{[]string{"--nnodes=2", "--node-rank=1"}, []string{
			"--nnodes=2: there is no --master-addr or --rdzv-endpoint, and 127.0.0.1" + loop,
		}},
		{
			[]string{"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.2"},
			[]string{"--master-addr=127.0.0.2: 127.0.0.2" + loop},
		},
		{[]string{"--nnodes=2:3", "--node-rank=2", "--master-addr=m", "--worker-store-port=7"}, []string{
			"--nnodes=2:3: the static backend waits for all 3 nodes, whose ranks are given",
			"--worker-store-port=7: has no effect with the static backend, whose workers meet at the master address",
		}},
		{
			[]string{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=a", "--rdzv-endpoint=h", "--rdzv-conf=user=u,password_file=p"},
			[]string{
				"--rdzv-conf=user=u,password_file=p: the password is sent in plain text; use protocol=https",
			},
		},
	}
	for _, tt := range tests {
		c := resolved(t, surroundings{}, tt.args...)
		if diff := cmp.Diff(tt.want, c.Warnings); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}

func TestEndpoints(t *testing.T) {
	tests := []struct {
		args []string
		want []HostPort
	}{
		{nil, []HostPort{{"localhost", 0}}},
		{[]string{"--standalone", "--rdzv-endpoint=h:1"}, []HostPort{{"localhost", 0}}},
		{[]string{"--rdzv-endpoint=h"}, []HostPort{{"h", 29400}}},
		{[]string{"--nnodes=2", "--rdzv-endpoint= h "}, []HostPort{{"h", 29400}}},
		{[]string{"--nnodes=2", "--rdzv-endpoint=[fd00::1]:7"}, []HostPort{{"fd00::1", 7}}},
		{[]string{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=a", "--rdzv-endpoint=h"}, []HostPort{{"h", 2379}}},
		{
			[]string{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=a", "--rdzv-endpoint=h:1, i,[::2]:3"},
			[]HostPort{{"h", 1}, {"i", 2379}, {"::2", 3}},
		},
		{[]string{"--rdzv-backend=etcd"}, nil},
		{[]string{"--nnodes=2", "--node-rank=0", "--master-addr=m"}, []HostPort{{"m", 29500}}},
		{[]string{"--rdzv-backend=static", "--rdzv-endpoint=h:1"}, []HostPort{{"h", 1}}},
		{[]string{"--rdzv-backend=own", "--rdzv-endpoint=h:1"}, nil},
	}
	for _, tt := range tests {
		c := resolved(t, surroundings{}, tt.args...)
		if diff := cmp.Diff(tt.want, c.Rendezvous.Endpoints); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}

// Without a rank a node of a static job is rank 0, as in torchrun, and says so.
func TestStaticRankDefault(t *testing.T) {
	const warning = "--node-rank: is 0, because it is not given and no scheduler provides it; give every other node its own rank"
	for _, tt := range []struct {
		args     []string
		env      vars
		hint     int
		warnings []string
	}{
		{args: []string{"--nnodes=2", "--master-addr=m"}, warnings: []string{warning}},
		{args: []string{"--nnodes=2", "--master-port=7", "--master-addr=m"}, warnings: []string{warning}},
		{args: []string{"--nnodes=2", "--rdzv-backend=static", "--rdzv-endpoint=m:7"}, warnings: []string{warning}},
		{
			args: []string{"--nnodes=1:2", "--master-addr=m"},
			warnings: []string{
				warning,
				"--nnodes=1:2: the static backend waits for all 2 nodes, whose ranks are given",
			},
		},
		{args: []string{"--nnodes=2", "--master-addr=m", "--node-rank=0"}},
		{args: []string{"--nnodes=2", "--master-addr=m"}, env: vars{"SLURM_NODEID": "1"}, hint: 1},
		{args: []string{"--rdzv-backend=static"}, hint: -1},
		{args: []string{"--nnodes=2", "--rdzv-endpoint=m"}, hint: -1},
	} {
		c := resolved(t, surroundings{env: tt.env.lookup}, tt.args...)
		if diff := cmp.Diff(tt.warnings, c.Warnings); diff != "" || c.Rendezvous.Hint != tt.hint {
			t.Errorf("%q: rank %d, want %d; warnings (-want +got):\n%s", tt.args, c.Rendezvous.Hint, tt.hint, diff)
		}
	}
}

func TestRendezvousRefuses(t *testing.T) {
	const ownID = "the etcd backend needs a run id that no other job in the same etcd has: give --rdzv-id=ID, the same on all nodes"
	tests := []struct {
		args []string
		env  vars
		want string
	}{
		{[]string{"--nnodes=2", "--standalone"}, nil, "--nnodes=2: --standalone runs on one node"},
		{[]string{"--nnodes=2"}, vars{"MASTER_PORT": "1"}, "--nnodes=2: several nodes need an endpoint at which they meet: " +
			"give --rdzv-endpoint=local for several terminals of this machine, or HOST[:PORT], one of the nodes"},
		{
			[]string{"--nnodes=2", "--rdzv-endpoint=h:0"},
			nil,
			"--rdzv-endpoint=h:0: several nodes need a port that they all know",
		},
		{[]string{"--nnodes=1", "--rdzv-endpoint=h,i"}, nil, "--rdzv-endpoint=h,i: has several endpoints, but only jobs of several nodes keep their store on several: give one endpoint, or a larger maximum of --nnodes"},
		{[]string{"--nnodes=3", "--rdzv-endpoint=h,i", "--rdzv-conf=voters=1"}, nil, "--rdzv-endpoint=h,i: has several endpoints, but with voters=1 in --rdzv-conf only the first node keeps the job's store: give one endpoint, or leave voters out"},
		{[]string{"--nnodes=3", "--rdzv-endpoint=h,h:29400"}, nil, "--rdzv-endpoint=h,h:29400: h:29400 is there twice"},
		{[]string{"--nnodes=3", "--rdzv-endpoint=h,localhost"}, nil, "--rdzv-endpoint=h,localhost: localhost means another machine on each node: name the machine, or give localhost alone for agents of one machine"},
		{[]string{"--nnodes=3", "--rdzv-endpoint=::1,h"}, nil, "--rdzv-endpoint=::1,h: ::1 means another machine on each node: name the machine, or give ::1 alone for agents of one machine"},
		{[]string{"--nnodes=3", "--rdzv-endpoint=a,b,c,d,e,f"}, nil, "--rdzv-endpoint=a,b,c,d,e,f: has 6 endpoints: give at most 5"},
		{[]string{"--nnodes=3", "--rdzv-endpoint=h,"}, nil, `--rdzv-endpoint=h,: "" is not a host name or an address`},
		{
			[]string{"--nnodes=2", "--rdzv-endpoint=0.0.0.0"},
			nil,
			"--rdzv-endpoint=0.0.0.0: 0.0.0.0 is no address that other nodes can reach: give an address of this machine, or a host name",
		},
		{
			[]string{"--nnodes=2", "--rdzv-endpoint=[::]:1"},
			nil,
			"--rdzv-endpoint=[::]:1: :: is no address that other nodes can reach: give an address of this machine, or a host name",
		},
		{
			[]string{"--nnodes=2", "--node-rank=0", "--master-port=0"},
			nil,
			"--master-port=0: several nodes need a port that they all know",
		},
		{
			[]string{"--nnodes=2", "--node-rank=0", "--master-addr=0.0.0.0"},
			nil,
			"--master-addr=0.0.0.0: is no address that other nodes can reach",
		},
		{
			[]string{"--nnodes=2", "--master-addr=m"},
			vars{"SLURM_NODEID": "x"},
			"SLURM_NODEID=x: must be a whole number between 0 and 1048576; or give --nnodes, --rdzv-endpoint and --node-rank",
		},
		{
			[]string{"--nnodes=2", "--master-addr=m"},
			vars{"SLURM_NODEID": "2"},
			"SLURM_NODEID=2: is the node's rank, because --node-rank is not given; it must be below the number of nodes, 2",
		},
		{
			[]string{"--nnodes=2", "--master-addr=m", "--node-rank=2"},
			vars{"SLURM_NODEID": "0"},
			"--node-rank=2: must be below the number of nodes, 2",
		},
		{[]string{"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=h"}, nil, "--rdzv-id: " + ownID},
		{[]string{"--rdzv-backend=etcd", "--rdzv-id=none"}, nil, "--rdzv-id=none: " + ownID},
		{
			[]string{"--rdzv-backend=etcd-v2"},
			nil,
			"--rdzv-backend=etcd-v2: version 2 of etcd's API is not supported, and etcd itself has dropped it; use --rdzv-backend=etcd, which speaks version 3",
		},
		{
			[]string{"--rdzv-backend=file"},
			nil,
			"--rdzv-backend=file: there is no rendezvous by files; use c10d, with --rdzv-endpoint naming one of the nodes, or etcd",
		},
		{
			[]string{"--rdzv-backend=etcd", "--rdzv-id=a", "--rdzv-endpoint=http://h:1"},
			nil,
			`--rdzv-endpoint=http://h:1: "http://h" is a URL: write HOST:PORT only`,
		},
	}
	for _, tt := range tests {
		_, err := resolveIn(surroundings{env: tt.env.lookup}, append(tt.args, "s.py")...)
		wantRefusal(t, tt.args, err, tt.want)
	}
}

// TestSeveralNodes checks every field of a job of several nodes.
func TestSeveralNodes(t *testing.T) {
	got := resolved(t, surroundings{}, "--nnodes=2:4", "--rdzv-endpoint=node0", "--rdzv-id=job", "--local-addr=10.0.0.7",
		"--worker-store-port=29500-29510")
	want := defaults()
	want.Script, want.RunID, want.MinNodes, want.MaxNodes = "s.py", "job", 2, 4
	v := &want.Rendezvous
	v.Ports = []int{29400}
	v.Endpoint, v.Endpoints, v.MasterAddr, v.LocalAddr = "node0", []HostPort{{"node0", 29400}}, "", "10.0.0.7"
	v.Expected, v.WorkerStorePorts = 0, PortRange{29500, 29510}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Config{}, "Settings"), cmpopts.EquateEmpty(), cmp.AllowUnexported(exitcode.Map{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestScheduler(t *testing.T) {
	tests := []struct {
		name           string
		args           string // of --nnodes
		env            vars
		hint, expected int
	}{
		{"nothing known", "2:4", nil, -1, 0},
		{"a number of nodes", "3", nil, -1, 3},
		{
			"Slurm's step",
			"2:4",
			vars{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3", "SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "2"},
			2,
			3,
		},
		{"Slurm's step, older", "2:8", vars{"SLURM_STEP_ID": "0", "SLURM_NNODES": "5", "SLURM_NODEID": "4"}, 4, 5},
		{"Slurm's job", "2:8", vars{"SLURM_STEP_ID": "1", "SLURM_JOB_NUM_NODES": "6", "SLURM_NNODES": "5"}, -1, 6},
		{"Slurm's batch script", "2:8", vars{"SLURM_JOB_NUM_NODES": "6", "SLURM_NODEID": "0"}, 0, 0},
		{
			"a step of one node, which others have come from",
			"2:4",
			vars{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1"},
			-1,
			0,
		},
		{"fewer than the minimum", "3:4", vars{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}, -1, 3},
		{"more than the maximum", "2:4", vars{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "100"}, -1, 4},
		{"a number of nodes goes before Slurm's", "3", vars{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}, -1, 3},
		{"no numbers", "2:4", vars{"SLURM_STEP_NUM_NODES": "many", "SLURM_STEP_ID": "0", "SLURM_NODEID": "-1"}, -1, 0},
		{"none at all", "2:4", vars{"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "0"}, -1, 0},
		{"Kubernetes", "2:4", vars{"JOB_COMPLETION_INDEX": "3"}, 3, 0},
		{"Slurm goes before Kubernetes", "2:4", vars{"JOB_COMPLETION_INDEX": "3", "SLURM_NODEID": "1"}, 1, 0},
		{"one node takes no hint", "1", vars{"SLURM_STEP_ID": "0", "SLURM_NODEID": "3", "SLURM_STEP_NUM_NODES": "4"}, -1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := resolved(t, surroundings{env: tt.env.lookup}, "--nnodes="+tt.args, "--rdzv-endpoint=h")
			if v := c.Rendezvous; v.Hint != tt.hint || v.Expected != tt.expected {
				t.Errorf("hint %d, expected %d, want %d and %d", v.Hint, v.Expected, tt.hint, tt.expected)
			}
		})
	}
	c := resolved(t, surroundings{env: vars{"SLURM_NODEID": "1"}.lookup}, "--nnodes=2:4", "--rdzv-backend=c10d",
		"--rdzv-endpoint=h", "--node-rank=2")
	if c.Rendezvous.Hint != 2 {
		t.Errorf("--node-rank=2 beside SLURM_NODEID=1: hint %d", c.Rendezvous.Hint)
	}
}

// TestLaunchID checks that --launch-id overrides the id of a Slurm step or an mpirun job, whose processes are never
// restarted.
func TestLaunchID(t *testing.T) {
	type launch struct {
		ID       string
		Restarts bool
	}
	const step = "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n[1-2] "
	for _, tt := range []struct {
		name, args, env string
		want            launch
	}{
		{name: "by hand", args: "--nnodes=2 --rdzv-endpoint=h"},
		{name: "given", args: "--nnodes=2 --rdzv-endpoint=h --launch-id=a", want: launch{"a", true}},
		{name: "a step of Slurm", env: step, want: launch{"slurm-12.3", false}},
		{name: "requeued, with a run id", args: "--rdzv-id=job7 --rdzv-endpoint=h", env: step + "SLURM_RESTART_COUNT=1", want: launch{"slurm-12.3.r1", false}},
		{name: "given in a step", args: "--launch-id=a", env: step, want: launch{"a", true}},
		{name: "the shell of an allocation", args: "--nnodes=2 --rdzv-endpoint=h", env: "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=n[1-2]"},
		{name: "pods, whose Job may be made again by the same name", args: "--nnodes=2", env: podEnv},
		{name: "mpirun", args: "--nnodes=2 --rdzv-endpoint=h", env: "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=p@1", want: launch{"openmpi-p-1", false}},
	} {
		from := surroundings{env: environ(tt.env).lookup, host: podHost, self: []string{"PROG"}}
		c := resolved(t, from, strings.Fields(tt.args)...)
		if got := (launch{c.Rendezvous.LaunchID, c.Rendezvous.LaunchRestarts && c.Rendezvous.LaunchID != ""}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if _, err := resolveArgs(machine{}, "--launch-id="+strings.Repeat("x", maxLaunchID+1), "s.py"); err == nil {
		t.Error("a very long launch id is accepted")
	}
}
