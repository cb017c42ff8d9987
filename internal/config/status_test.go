package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

func TestLoadStatus(t *testing.T) {
	clean(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("the job's own secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	type brief struct {
		Addr, Backend, Endpoints, RunID, Prefix string
		Secret, JSON, Watch, Local              bool
	}
	for _, tt := range []struct {
		name, args, env string
		want            brief
	}{
		{name: "an agent", args: "--addr node1:9000", want: brief{Addr: "node1:9000"}},
		{name: "an agent here", args: "--addr=:9000 --watch --json", want: brief{Addr: "127.0.0.1:9000", Watch: true, JSON: true}},
		{name: "an agent, in a job's environment", args: "--addr=:9000", env: "node1", want: brief{Addr: "127.0.0.1:9000"}},
		{name: "the job here", want: brief{Local: true}},
		{name: "a job here", args: "--rdzv-id j --watch", want: brief{Local: true, RunID: "j", Watch: true}},
		{name: "a job", args: "--rdzv-endpoint node1", want: brief{Backend: rdzv.BackendC10d, Endpoints: "node1:29400", RunID: "none"}},
		{name: "by the environment", env: "node1:7", want: brief{Backend: rdzv.BackendC10d, Endpoints: "node1:7", RunID: "none"}},
		{
			name: "all", args: "--rdzv_endpoint [::1]:7 --rdzv-id j --rdzv-backend static --rdzv-secret-file " + secret,
			want: brief{Backend: rdzv.BackendStatic, Endpoints: "[::1]:7", RunID: "j", Secret: true},
		},
		{
			name: "etcd", args: "--rdzv-backend=etcd --rdzv-id=j --rdzv-endpoint=a,b:7 --rdzv-conf=etcd_prefix=/x",
			want: brief{Backend: rdzv.BackendEtcd, Endpoints: "a:2379 b:7", RunID: "j", Prefix: "/x"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.env != "" {
				t.Setenv("PET_RDZV_ENDPOINT", tt.env)
			}
			c, err := LoadStatus(strings.Fields(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			got := brief{
				Backend: c.Rendezvous.Backend, RunID: c.RunID, Prefix: c.Rendezvous.Etcd.Prefix,
				Secret: c.Rendezvous.Secret.Reveal() == "the job's own secret", JSON: c.JSON, Watch: c.Watch, Local: c.Local,
			}
			if c.Addr != nil {
				got.Addr = c.Addr.String()
			}
			var endpoints []string
			for _, e := range c.Rendezvous.Endpoints {
				endpoints = append(endpoints, e.String())
			}
			got.Endpoints = strings.Join(endpoints, " ")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadStatusRefuses(t *testing.T) {
	clean(t)
	for args, want := range map[string]string{
		"--rdzv-backend=c10d":                   "--rdzv-backend=c10d: needs --rdzv-endpoint",
		"--rdzv-id=a/b":                         "--rdzv-id=a/b: must not be empty or contain a slash",
		"--addr=9000":                           "--addr=9000: 9000 is a port without a host: write HOST:9000, such as 127.0.0.1:9000",
		"--addr=:0":                             "--addr=:0: needs the port",
		"--addr=:1 --rdzv-endpoint=x":           "--rdzv-endpoint=x: cannot be combined with --addr",
		"--rdzv-endpoint=x:y":                   `--rdzv-endpoint=x:y: the port "y"`,
		"--rdzv-endpoint=x --rdzv-id=a/b":       "--rdzv-id=a/b: must not be empty or contain a slash",
		"--rdzv-endpoint=x --rdzv-backend=etcd": "the etcd backend needs a run id",
		"--rdzv-endpoint=x --rdzv-backend=mine": "--rdzv-backend=mine: must be one of",
		"--rdzv-endpoint=x --rdzv-conf=nope=1":  "--rdzv-conf=nope=1: ",
		"node1":                                 "elasticrun status takes flags only; write --rdzv-id=node1",
		"--adr=:1":                              "--adr: unknown flag",
	} {
		_, err := LoadStatus(strings.Fields(args))
		if _, bad := errors.AsType[*UsageError](err); !bad || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	if _, err := LoadStatus([]string{"--help"}); !errors.Is(err, ErrHelp) {
		t.Error(err)
	}
}

// TestEmptyRunID checks that a run id that was given empty, as by an unset variable of the shell, is not none: it would
// select another job.
func TestEmptyRunID(t *testing.T) {
	clean(t)
	const want = "must not be empty: give the job's run id, which elasticrun ps lists"
	refused := func(where string, err error) {
		t.Helper()
		_, bad := errors.AsType[*UsageError](err)
		if !bad || !strings.HasPrefix(err.Error(), where) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", where, err)
		}
	}
	for _, args := range [][]string{{"--rdzv-id", ""}, {"--rdzv-id= "}, {"--rdzv-id=", "--rdzv-endpoint=h"}} {
		_, err := LoadStop(args)
		refused("--rdzv-id=", err)
		_, err = LoadStatus(args)
		refused("--rdzv-id=", err)
	}
	t.Setenv("PET_RDZV_ID", "")
	_, err := LoadStop(nil)
	refused("PET_RDZV_ID=", err)
	const job = "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] "
	settings, _, err := gather(statusFlags(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = resolveStatus(newReader(statusFlags(), settings), surroundings{env: environ(job).lookup})
	refused("PET_RDZV_ID=", err)
}

func TestParseStatusAddr(t *testing.T) {
	for text, want := range map[string]HostPort{
		":9000": {"127.0.0.1", 9000}, "0.0.0.0:1": {"0.0.0.0", 1}, "[::]:0": {"::", 0}, "node1:80": {"node1", 80},
	} {
		if got, err := parseStatusAddr(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestParseEventLog(t *testing.T) {
	for path, good := range map[string]bool{
		"": true, "events": true, "${hostname}-$run_id.log": true, "$$node_rank": true, "${unknown}": true,
		"${node_rank}": false, "a/$node_rank.log": false,
	} {
		if got, err := parseEventLog(path); (err == nil) != good || good && got != path {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

// TestStatusInfers checks that in a scheduler's job no flag is needed.
func TestStatusInfers(t *testing.T) {
	const job = "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] "
	for _, tt := range []struct{ name, args, env, want string }{
		{"a batch script", "", job, "n1 slurm-12.0"},
		{"another step", "", job + "SLURM_STEP_ID=4 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n3 SLURM_RESTART_COUNT=2", "n1 slurm-12.0.r2"},
		{"a run id", "--rdzv-id=mine", job, "n1 mine"},
		{"an endpoint", "--rdzv-endpoint=h", job, "h none"},
		{"a pod", "", "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=1", "train-0.train.ml.svc.cluster.local kubernetes-ml-train"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			settings, _, err := gather(statusFlags(), strings.Fields(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			c, err := resolveStatus(newReader(statusFlags(), settings), surroundings{env: environ(tt.env).lookup, host: podHost})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Rendezvous.Endpoints[0].Host + " " + c.RunID; got != tt.want {
				t.Errorf("asks %s, want %s", got, tt.want)
			}
			if derived := len(c.Rendezvous.Ports) == 8; derived != strings.Contains(tt.want, "slurm-") {
				t.Errorf("ports %v", c.Rendezvous.Ports)
			}
		})
	}
	for args, want := range map[string]InferredTarget{
		"":                    {SchedulerJob: "slurm 12", Note: "asking for the job slurm-12.0 (the first step of Slurm's job 12); --rdzv-id asks for another"},
		"--rdzv-id=mine":      {SchedulerJob: "slurm 12", RunID: "mine"},
		"--rdzv-backend=c10d": {Note: "asking for the job slurm-12.0 (the first step of Slurm's job 12); --rdzv-id asks for another"},
	} {
		settings, _, err := gather(statusFlags(), strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		c, err := resolveStatus(newReader(statusFlags(), settings), surroundings{env: environ(job).lookup})
		if err != nil || c.Local || *c.Inferred != want {
			t.Errorf("%s: %+v, %v", args, c.Inferred, err)
		}
	}
	c, err := resolveStatus(newReader(statusFlags(), nil), surroundings{env: environ("").lookup})
	if err != nil || !c.Local {
		t.Errorf("nothing is known: %+v, %v", c, err)
	}
}

// TestLoadStop checks that elasticrun stop finds its job as elasticrun status does.
func TestLoadStop(t *testing.T) {
	clean(t)
	for args, want := range map[string]string{
		"":            "true  ",
		"--rdzv-id=j": "true j ",
		"--rdzv-id=j --rdzv-endpoint=h:7 --rdzv-backend=static": "false j h:7",
	} {
		c, err := LoadStop(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Local, " ", c.RunID, " ", c.Rendezvous.Endpoint); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	for args, want := range map[string]string{
		"job":                  "elasticrun stop takes flags only; write --rdzv-id=job",
		"--rdzv-secret-file=s": "needs --rdzv-endpoint",
		"--rdzv-endpoint=x:y":  "the port",
		"--addr=:1":            "unknown flag",
	} {
		if _, err := LoadStop(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
