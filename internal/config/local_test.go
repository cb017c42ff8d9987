package config

import (
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// A local endpoint has no address, and the same command in the same folder has the same run id.
func TestLocalEndpoint(t *testing.T) {
	load := func(dir string, args ...string) *Config {
		t.Helper()
		from := surroundings{dir: func() string { return dir }}
		c, err := resolveIn(from, append([]string{"--nnodes=2:4", "--rdzv-endpoint=local"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load("/work", "pkg/my train.py", "--lr=1")
	v := c.Rendezvous
	if !v.Local || v.Endpoints != nil || v.Endpoint != "local" || v.Backend != "c10d" || v.Ports != nil {
		t.Errorf("the rendezvous is %+v", v)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings: %q", c.Warnings)
	}
	if !strings.HasPrefix(c.RunID, "my-train-") || len(c.RunID) != len("my-train-")+12 {
		t.Errorf("the run id is %s", c.RunID)
	}
	seen := map[string]string{}
	for name, other := range map[string]*Config{
		"the command":     c,
		"another folder":  load("/other", "pkg/my train.py", "--lr=1"),
		"another script":  load("/work", "my train.py", "--lr=1"),
		"other arguments": load("/work", "pkg/my train.py", "--lr=2"),
		"split arguments": load("/work", "pkg/my train.py", "--lr=", "1"),
		"a module":        load("/work", "-m", "pkg/my train.py", "--lr=1"),
		"a program":       load("/work", "--no-python", "pkg/my train.py", "--lr=1"),
		"an odd name":     load("/work", "--no-python", strings.Repeat("é/", 40)),
	} {
		if same := seen[other.RunID]; same != "" {
			t.Errorf("%s and %s have the run id %s", same, name, other.RunID)
		}
		seen[other.RunID] = name
	}
	if again := load("/work", "--nproc-per-node=3", "pkg/my train.py", "--lr=1"); again.RunID != c.RunID {
		t.Errorf("flags of the launcher change the run id to %s", again.RunID)
	}
	if named := load("/work", "--rdzv-id=job7", "s.py"); named.RunID != "job7" {
		t.Errorf("--rdzv-id=job7 gives the run id %s", named.RunID)
	}
}

// A job of one node needs no rendezvous, so a local endpoint changes nothing.
func TestLocalEndpointOfOneNode(t *testing.T) {
	for _, args := range [][]string{{"--nnodes=1", "--master-port=5"}, {"--standalone"}} {
		c, err := resolveIn(surroundings{}, append(args, "--rdzv-endpoint=local", "s.py")...)
		if err != nil || c.Rendezvous.Local || c.RunID != "fresh" {
			t.Errorf("%q: %+v, %v", args, c, err)
		}
	}
}

func TestLocalEndpointRefuses(t *testing.T) {
	slurmStep := vars{
		"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_NUM_NODES": "2",
		"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_NNODES": "2", "SLURM_NODEID": "0", "SLURM_PROCID": "0",
		"SLURM_STEP_TASKS_PER_NODE": "1(x2)",
	}
	for _, tt := range []struct {
		args string
		env  vars
		want string
	}{
		{"--node-rank=1", nil, "--node-rank=1: contradicts --rdzv-endpoint=local, whose agents agree on their ranks: leave one of them out"},
		{"--master-addr=h", nil, "--master-addr=h: contradicts --rdzv-endpoint=local, whose workers meet at 127.0.0.1: leave one of them out"},
		{"--master-port=5", nil, "--master-port=5: contradicts --rdzv-endpoint=local, whose workers take a free port, or --worker-store-port: leave one of them out"},
		{"--local-addr=10.0.0.1", nil, "--local-addr=10.0.0.1: contradicts --rdzv-endpoint=local, whose workers meet at 127.0.0.1: leave one of them out"},
		{"--rdzv-conf=is_host=true", nil, "--rdzv-conf=is_host=true: is_host contradicts --rdzv-endpoint=local, where the first agent hosts the rendezvous: leave one of them out"},
		{"--rdzv-backend=etcd", nil, "--rdzv-backend=etcd: contradicts --rdzv-endpoint=local, which needs the default backend, c10d: leave one of them out"},
		{"--rdzv-backend=static", nil, "--rdzv-backend=static: contradicts --rdzv-endpoint=local, which needs the default backend, c10d: leave one of them out"},
		{"--rdzv-endpoint=local:29400", nil, "--rdzv-endpoint=local:29400: takes no port: write --rdzv-endpoint=local; for a host of that name give its address"},
		{"--role=a", slurmStep, "--rdzv-endpoint=local: is for agents on one machine, but the scheduler has started them on 2 (SLURM_STEP_NUM_NODES=2): name one node, or leave the endpoint out"},
	} {
		_, err := resolveIn(surroundings{env: tt.env.lookup}, "--nnodes=2", "--rdzv-endpoint=local", tt.args, "s.py")
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.args, err, tt.want)
		}
	}
}

// Commands that ask for a job take the endpoint of its agents, and find the job on this machine.
func TestLocalTarget(t *testing.T) {
	r := newReader(statusFlags(), []Setting{
		{Name: "rdzv-endpoint", Value: "local", Source: Source{Kind: FromFlag}},
		{Name: "rdzv-backend", Value: "c10d", Source: Source{Kind: FromFlag}},
	})
	c, err := resolveStatus(r, surroundings{env: vars(nil).lookup})
	if err != nil || !c.Local || !c.Rendezvous.Local || c.RunID != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

// The refusal of a job without an endpoint repeats the command line with both endpoints.
func TestCommandLinesWithEndpoints(t *testing.T) {
	for _, tt := range []struct {
		self  []string
		words int
		want  string
	}{
		{[]string{"PROG", "--nnodes", "2", "s.py", "a b"}, 2, "elasticrun --nnodes 2 --rdzv-endpoint=local s.py 'a b'"},
		{[]string{"PROG", "--nnodes=2", "--", "-s.py"}, 1, "elasticrun --nnodes=2 --rdzv-endpoint=local -- -s.py"},
		{[]string{"PROG", "s.py"}, 1, "elasticrun --rdzv-endpoint=local s.py"},
		{[]string{"PROG", "--", "s.py", "--"}, 2, "elasticrun --rdzv-endpoint=local -- s.py --"},
	} {
		got := surroundings{self: tt.self, host: scheduler.Host{Name: "n1"}}.withEndpoints(tt.words)
		if len(got) != 2 || got[0] != tt.want || got[1] != strings.Replace(tt.want, "=local", "=n1:29400", 1) {
			t.Errorf("%q: %q", tt.self, got)
		}
	}
	if got := (surroundings{}).withEndpoints(1); got != nil {
		t.Errorf("an unknown command line: %q", got)
	}
}
