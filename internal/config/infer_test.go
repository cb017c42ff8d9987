package config

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/scheduler"
)

// environ returns an environment from text such as NAME=VALUE NAME=VALUE.
func environ(text ...string) vars {
	env := vars{}
	for v := range strings.FieldsSeq(strings.Join(text, " ")) {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// The environments of these tests: a node of a Slurm step, a batch script, a pod, a process of mpirun.
const (
	stepEnv = "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=n[1-3] SLURM_NODEID=1 SLURMD_NODENAME=n2 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1 "
	taskEnv = stepEnv + "SLURM_STEP_NUM_TASKS=6 SLURM_PROCID=2 "
	jobEnv  = "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] SLURM_NODEID=0 SLURMD_NODENAME=n1 "
	podEnv  = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=1 "
	mpiEnv  = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
	localEn = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
)

var podHost = scheduler.Host{Name: "train-1", Hosts: "10.1.2.3 train-1.train.ml.svc.cluster.local train-1\n"}

// inferred returns the inferred settings as one line.
func inferred(c *Config) string {
	var words []string
	for _, s := range c.Inferred {
		words = append(words, s.Name+"="+s.Value)
	}
	if c.Rendezvous.IsHost != nil {
		words = append(words, map[bool]string{true: "host", false: "guest"}[*c.Rendezvous.IsHost])
	}
	return strings.Join(words, " ")
}

func TestInfer(t *testing.T) {
	const step = "nnodes=3 node-rank=1 rdzv-id=slurm-12.0 rdzv-endpoint=n1,n2,n3 guest"
	tests := []struct {
		name, args, env string
		want            string // what is inferred
		size            [3]int // minimum, maximum, expected
		endpoint        HostPort
		warning         string
	}{
		{"nobody", "", "", "", [3]int{1, 1, 1}, HostPort{"localhost", 0}, ""},
		{"a step", "", stepEnv, step, [3]int{3, 3, 3}, HostPort{"n1", 28932}, ""},
		{"a range in a step", "--nnodes=2:4", stepEnv, step[9:], [3]int{2, 4, 3}, HostPort{"n1", 28932}, ""},
		{"standalone asks nobody", "--standalone", taskEnv, "", [3]int{1, 1, 1}, HostPort{"localhost", 0}, ""},
		{"nor does a worker", "", taskEnv + "TORCHELASTIC_RUN_ID=x", "", [3]int{1, 1, 1}, HostPort{"localhost", 0}, ""},
		{
			"an endpoint of one's own",
			"--rdzv-endpoint=h",
			stepEnv,
			"nnodes=3 node-rank=1 rdzv-id=slurm-12.0",
			[3]int{3, 3, 3},
			HostPort{"h", 29400},
			"",
		},
		{
			"an own run id and rank",
			"--rdzv-id=a --node-rank=0 --rdzv-backend=c10d",
			stepEnv,
			"nnodes=3 rdzv-endpoint=n1,n2,n3 guest",
			[3]int{3, 3, 3},
			HostPort{"n1", 28932},
			"",
		},
		{
			"is_host goes first",
			"--rdzv-conf=is_host=1",
			stepEnv,
			"nnodes=3 node-rank=1 rdzv-id=slurm-12.0 rdzv-endpoint=n1,n2,n3 host",
			[3]int{3, 3, 3},
			HostPort{"n1", 28932},
			"",
		},
		{
			"etcd",
			"--rdzv-backend=etcd --rdzv-endpoint=e",
			stepEnv,
			"nnodes=3 node-rank=1 rdzv-id=slurm-12.0",
			[3]int{3, 3, 3},
			HostPort{"e", 2379},
			"",
		},
		{
			"static",
			"--rdzv-backend=static",
			stepEnv,
			"nnodes=3 node-rank=1 rdzv-id=slurm-12.0 master-addr=n1",
			[3]int{3, 3, 3},
			HostPort{"n1", 29500},
			"",
		},
		{
			"static by its rank",
			"--node-rank=1",
			stepEnv,
			"nnodes=3 rdzv-id=slurm-12.0 master-addr=n1",
			[3]int{3, 3, 3},
			HostPort{"n1", 29500},
			"",
		},
		{
			"static and MASTER_ADDR",
			"--node-rank=1",
			stepEnv + "MASTER_ADDR=h MASTER_PORT=7",
			"nnodes=3 rdzv-id=slurm-12.0 master-addr=h master-port=7",
			[3]int{3, 3, 3},
			HostPort{"h", 7},
			"",
		},
		{
			"all of torchrun's flags",
			"--nnodes=3 --node-rank=1 --master-addr=m --master-port=5",
			stepEnv,
			"rdzv-id=slurm-12.0",
			[3]int{3, 3, 3},
			HostPort{"m", 5},
			"",
		},
		{
			"spares", "--nnodes=2", stepEnv, "node-rank=1 rdzv-id=slurm-12.0 rdzv-endpoint=n1 guest",
			[3]int{2, 2, 2},
			HostPort{"n1", 28932},
			"--nnodes=2: there are 3 nodes (SLURM_STEP_NUM_NODES=3): those above the maximum are spares",
		},
		{
			"more from elsewhere", "--nnodes=4 --rdzv-endpoint=h", stepEnv, "node-rank=1",
			[3]int{4, 4, 4},
			HostPort{"h", 29400},
			"--nnodes=4: the scheduler started only 3 (SLURM_STEP_NUM_NODES=3): the job waits for the others",
		},
		{
			"jobs of their own", "--nnodes=1", stepEnv, "",
			[3]int{1, 1, 1},
			HostPort{"localhost", 0},
			"--nnodes=1: there are 3 nodes (SLURM_STEP_NUM_NODES=3), and each runs a job of its own",
		},
		{
			"a node of a larger job", "", "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=3 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n2 SLURM_NODEID=0",
			"nnodes=1",
			[3]int{1, 1, 1},
			HostPort{"localhost", 0},
			"slurm job 12 has 3 nodes, but this step has one: it is a job of one node",
		},
		{
			"perhaps more from elsewhere",
			"--nnodes=1:4 --rdzv-endpoint=h",
			stepEnv,
			"node-rank=1",
			[3]int{1, 4, 3},
			HostPort{"h", 29400},
			"",
		},
		{
			"a step for each node, with static", "--nnodes=2 --node-rank=1 --master-addr=h --master-port=5",
			"SLURM_JOB_ID=12 SLURM_STEP_ID=1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n2 SLURM_NODEID=0", "",
			[3]int{2, 2, 2},
			HostPort{"h", 5},
			"--nnodes=2: the scheduler started only 1 (SLURM_STEP_NUM_NODES=1): the job waits for the others",
		},
		{
			"agents by task",
			"--nnodes=6",
			taskEnv,
			"node-rank=2 rdzv-id=slurm-12.0 rdzv-endpoint=n1 guest",
			[3]int{6, 6, 6},
			HostPort{"n1", 28932},
			"",
		},
		{
			"at most agents by task",
			"--nnodes=2:6",
			taskEnv,
			"node-rank=2 rdzv-id=slurm-12.0 rdzv-endpoint=n1 guest",
			[3]int{2, 6, 6},
			HostPort{"n1", 28932},
			"",
		},
		{
			"jobs by task", "--nnodes=1", taskEnv, "",
			[3]int{1, 1, 1},
			HostPort{"localhost", 0},
			"SLURM_STEP_NUM_TASKS=6: each of these processes runs a job of its own, because the number of nodes is 1; " +
				"--nnodes=1: there are 3 nodes (SLURM_STEP_NUM_NODES=3), and each runs a job of its own",
		},
		{
			"a list that is not needed", "--nnodes=2 --rdzv-endpoint=h", stepEnv + "SLURM_STEP_NODELIST=n[", "node-rank=1 rdzv-id=slurm-12.0",
			[3]int{2, 2, 2},
			HostPort{"h", 29400},
			`SLURM_STEP_NODELIST=n[: host list "n[", character 2: [ is not closed; ` +
				"--nnodes=2: there are 3 nodes (SLURM_STEP_NUM_NODES=3): those above the maximum are spares",
		},

		{
			"a batch script",
			"",
			jobEnv,
			"nnodes=3 node-rank=0 rdzv-id=slurm-12 rdzv-endpoint=n1,n2,n3",
			[3]int{3, 3, 3},
			HostPort{"n1", 29400},
			"",
		},
		{
			"a batch script of one node",
			"",
			"SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1 SLURM_NODEID=0 SLURMD_NODENAME=n1",
			"nnodes=1",
			[3]int{1, 1, 1},
			HostPort{"localhost", 0},
			"",
		},
		{"one node of a batch script", "--nnodes=1", jobEnv, "", [3]int{1, 1, 1}, HostPort{"localhost", 0}, ""},
		{
			"an agent in a batch script",
			"--nnodes=2:3 --rdzv-endpoint=h",
			jobEnv,
			"node-rank=0",
			[3]int{2, 3, 0},
			HostPort{"h", 29400},
			"",
		},
		{
			"one node by its master address", "--master-addr=h", jobEnv, "",
			[3]int{1, 1, 1},
			HostPort{"localhost", 0},
			"SLURM_JOB_NUM_NODES=3: this is a job of one node, because --nnodes is not given",
		},

		{
			"an Indexed Job",
			"--nnodes=2",
			podEnv,
			"node-rank=1 rdzv-id=kubernetes-ml-train rdzv-endpoint=train-0.train.ml.svc.cluster.local guest",
			[3]int{2, 2, 2},
			HostPort{"train-0.train.ml.svc.cluster.local", 29400},
			"",
		},
		{
			"an Indexed Job, own id",
			"--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=e --rdzv-id=a",
			podEnv,
			"node-rank=1",
			[3]int{2, 2, 2},
			HostPort{"e", 2379},
			"",
		},
		{
			"pods with an endpoint, which others may share",
			"--nnodes=4 --rdzv-endpoint=h",
			podEnv,
			"node-rank=1",
			[3]int{4, 4, 4},
			HostPort{"h", 29400},
			"",
		},
		{"pods that work apart", "--nnodes=1", podEnv, "", [3]int{1, 1, 1}, HostPort{"localhost", 0}, ""},
		{
			"a StatefulSet's pod", "", "KUBERNETES_SERVICE_HOST=10.0.0.1", "",
			[3]int{1, 1, 1},
			HostPort{"localhost", 0},
			"the host name train-1: this pod is not the only one of its StatefulSet, but its job has one node, because --nnodes is not given",
		},
		{
			"a pod and MASTER_ADDR",
			"--nnodes=2",
			"KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=0 MASTER_ADDR=h MASTER_PORT=23456",
			"node-rank=0 rdzv-endpoint=h:23456",
			[3]int{2, 2, 2},
			HostPort{"h", 23456},
			"",
		},

		{
			"mpirun",
			"",
			mpiEnv + "MASTER_ADDR=h",
			"nnodes=2 node-rank=1 rdzv-endpoint=h",
			[3]int{2, 2, 2},
			HostPort{"h", 29400},
			"",
		},
		{
			"mpirun on one machine", "--nnodes=2", localEn, "node-rank=1 rdzv-endpoint=localhost guest",
			[3]int{2, 2, 2},
			HostPort{"localhost", 29400},
			"",
		},
		{"MASTER_ADDR makes no nodes", "", "MASTER_ADDR=h MASTER_PORT=1", "", [3]int{1, 1, 1}, HostPort{"localhost", 0}, ""},
		{
			"MASTER_ADDR",
			"--nnodes=2",
			"MASTER_ADDR=h MASTER_PORT=1",
			"rdzv-endpoint=h:1",
			[3]int{2, 2, 2},
			HostPort{"h", 1},
			"",
		},
		{
			"MASTER_ADDR goes before a list",
			"",
			stepEnv + "MASTER_ADDR=h",
			"nnodes=3 node-rank=1 rdzv-id=slurm-12.0 rdzv-endpoint=h",
			[3]int{3, 3, 3},
			HostPort{"h", 28932},
			"",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from := surroundings{env: environ(tt.env).lookup, host: podHost, self: []string{"PROG"}}
			c := resolved(t, from, strings.Fields(tt.args)...)
			if got := inferred(c); got != tt.want {
				t.Errorf("inferred\n%s, want\n%s", got, tt.want)
			}
			if got := [3]int{c.MinNodes, c.MaxNodes, c.Rendezvous.Expected}; got != tt.size {
				t.Errorf("nodes %v, want %v", got, tt.size)
			}
			if got := c.Rendezvous.Endpoints; len(got) == 0 || got[0] != tt.endpoint || !strings.Contains(tt.want, ",n2") && len(got) > 1 {
				t.Errorf("endpoints %v, want %v first", got, tt.endpoint)
			}
			if tt.name == "a step" {
				want := []HostPort{{"n1", 28932}, {"n2", 28932}, {"n3", 28932}}
				if own := c.Rendezvous.OwnEndpoint; !slices.Equal(c.Rendezvous.Endpoints, want) || own == nil || *own != 1 {
					t.Errorf("endpoints %v, want %v", c.Rendezvous.Endpoints, want)
				}
			}
			if diff := cmp.Diff(tt.warning, strings.Join(c.Warnings, "; ")); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if got := c.Launch != nil; got != (tt.name == "a batch script") {
				t.Errorf("starts agents: %v", c.Launch)
			}
			for _, s := range c.Inferred {
				if got := settingNamed(c, s.Name); got.Source.Kind != FromScheduler || got.Value != s.Value || got.Given() {
					t.Errorf("the setting is %+v", got)
				}
			}
		})
	}
}

func TestInferRefuses(t *testing.T) {
	const instead = "; or give --nnodes, --rdzv-endpoint and --node-rank"
	tests := []struct{ name, args, env, want string }{
		{
			"tasks",
			"",
			taskEnv,
			"SLURM_STEP_NUM_TASKS=6 SLURM_STEP_NUM_NODES=3: several processes were started on a node, but one agent starts all workers of a node: " +
				"start one process per node (srun --ntasks-per-node=1 elasticrun ...), or give --nnodes=6 to make each process an agent, or --standalone to run a job in each",
		},
		{
			"tasks beside the nodes",
			"--nnodes=3 --rdzv-endpoint=h",
			taskEnv,
			"SLURM_STEP_NUM_TASKS=6 SLURM_STEP_NUM_NODES=3: several processes*",
		},
		{
			"mpirun's tasks",
			"",
			localEn,
			"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2: several processes were started on a node*",
		},
		{
			"too few nodes",
			"--nnodes=4:5",
			stepEnv,
			"--nnodes=4:5: the scheduler started only 3 (SLURM_STEP_NUM_NODES=3): give a smaller number, or start more",
		},
		{
			"too few nodes in the allocation",
			"--nnodes=4",
			jobEnv,
			"--nnodes=4: the scheduler started only 3 (SLURM_JOB_NUM_NODES=3)*",
		},
		{
			"a list",
			"",
			stepEnv + "SLURM_STEP_NODELIST=n[1-2]",
			"SLURM_STEP_NODELIST=n[1-2]: lists 2 nodes, but the step has SLURM_STEP_NUM_NODES=3" + instead,
		},
		{
			"a list, and no endpoint",
			"--nnodes=3",
			stepEnv + "SLURM_STEP_NODELIST=n[1-2]",
			"SLURM_STEP_NODELIST=n[1-2]: lists 2*",
		},
		{
			"a number",
			"--rdzv-endpoint=h",
			stepEnv + "SLURM_STEP_NUM_NODES=3x",
			"SLURM_STEP_NUM_NODES=3x: must be a whole number between 1 and 1048576" + instead,
		},
		{
			"a rank for static",
			"--nnodes=3 --master-addr=h",
			stepEnv + "SLURM_NODEID=x",
			"SLURM_NODEID=x: must be a whole number*",
		},
		{
			"etcd needs an endpoint",
			"--rdzv-backend=etcd",
			stepEnv,
			"SLURM_STEP_NUM_NODES=3: several nodes need an endpoint at which they meet: give --rdzv-endpoint=*the address of etcd",
		},
		{"an Indexed Job", "", podEnv, "JOB_COMPLETION_INDEX=1: this pod belongs to an Indexed Job*"},
		{
			"a run id that returns",
			"--nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=e",
			podEnv,
			"--rdzv-id: the etcd backend needs a run id that no other job in the same etcd has*",
		},
		{
			"a pod without index",
			"--nnodes=2",
			"KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=7",
			"--nnodes=2: several nodes need an endpoint at which they meet: its pods cannot find each other*",
		},
		{
			"mpirun without address",
			"",
			mpiEnv,
			"OMPI_COMM_WORLD_SIZE=2: several nodes need an endpoint at which they meet: the host of rank 0 is unknown: give it to all processes, by mpirun -x MASTER_ADDR=HOST ..., or by --rdzv-endpoint=HOST[:PORT]",
		},
		{"a bad MASTER_ADDR", "--nnodes=2", "MASTER_ADDR=a/b", `MASTER_ADDR=a/b: "a/b" has a path: write HOST:PORT only`},
		{
			"a bad MASTER_PORT",
			"--nnodes=2",
			"MASTER_ADDR=h MASTER_PORT=x",
			`MASTER_ADDR=h MASTER_PORT=x: the port "x" must be a number between 0 and 65535`,
		},
		{
			"a bad MASTER_ADDR for static",
			"--nnodes=2 --node-rank=0",
			"MASTER_ADDR=a/b",
			`MASTER_ADDR=a/b: "a/b" has a path: write HOST:PORT only`,
		},
		{"bad nodes first", "--nnodes=x", taskEnv, "--nnodes=x: must be N or MIN:MAX*"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := resolveIn(
				surroundings{env: environ(tt.env).lookup, host: podHost},
				append(strings.Fields(tt.args), "s.py")...)
			usage, ok := errors.AsType[*UsageError](err)
			if !ok {
				t.Fatalf("got %v (%T), want a *UsageError", err, err)
			}
			begin, end, open := strings.Cut(tt.want, "*")
			got := usage.Error()
			if matches := open && strings.HasPrefix(got, begin) && strings.HasSuffix(got, end); got != tt.want && !matches {
				t.Errorf("got\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// A secret is drawn only if this process starts all agents of the job and the user gave no secret.
func TestDrawsSecret(t *testing.T) {
	for _, tt := range []struct {
		name, args, env string
		want            bool
	}{
		{"a batch script", "", jobEnv, true},
		{"static", "--rdzv-backend=static", jobEnv, true},
		{"a run id", "--rdzv-id=job7", jobEnv, true},
		{"the first node as MASTER_ADDR", "", jobEnv + " MASTER_ADDR=n1", true},
		{"a port of MASTER_ADDR, where a store may listen", "", jobEnv + " MASTER_ADDR=n1 MASTER_PORT=29400", false},
		{"another host as MASTER_ADDR", "", jobEnv + " MASTER_ADDR=h", false},
		{"a secret of the user", "", jobEnv + " PET_RDZV_SECRET=0123456789abcdefghij", false},
		{"etcd", "--rdzv-backend=etcd --rdzv-endpoint=h --rdzv-id=job7 --nnodes=3", jobEnv, false},
		{"an endpoint of the user", "--rdzv-endpoint=h --nnodes=3", jobEnv, false},
		{"one node", "--nnodes=1", jobEnv, false},
		{"a step", "", stepEnv, false},
		{"no scheduler", "--nnodes=2 --rdzv-endpoint=h", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := resolveIn(surroundings{env: environ(tt.env).lookup}, append(strings.Fields(tt.args), "s.py")...)
			if err != nil || c.DrawsSecret != tt.want {
				t.Errorf("%v, %v, want %v", c != nil && c.DrawsSecret, err, tt.want)
			}
		})
	}
}

// Secrets are as long as the key of the proofs, and differ.
func TestDrawSecret(t *testing.T) {
	a, b := DrawSecret(), DrawSecret()
	if a == b || !regexp.MustCompile("^[0-9a-f]{64}$").MatchString(a) {
		t.Errorf("%q, then %q", a, b)
	}
}

func TestInferLaunch(t *testing.T) {
	env := environ(jobEnv, "SLURM_JOB_END_TIME=1800000000 SLURM_RESTART_COUNT=1")
	c, err := resolveIn(
		surroundings{env: env.lookup, self: []string{"/opt/elasticrun", "--max-restarts=1", "s.py"}},
		"--max-restarts=1",
		"s.py",
	)
	if err != nil {
		t.Fatal(err)
	}
	want := "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --wait=0 --cpu-bind=none /opt/elasticrun --max-restarts=1 s.py"
	if diff := cmp.Diff(want, strings.Join(c.Launch, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Scheduler != "slurm" || c.Attempt != 1 || !c.Deadline.Equal(time.Unix(1800000000, 0)) {
		t.Errorf("scheduler %q, attempt %d, deadline %v", c.Scheduler, c.Attempt, c.Deadline)
	}
	if !c.DrawsSecret {
		t.Error("the agents get no secret")
	}
	c, err = resolveIn(surroundings{env: environ(stepEnv).lookup}, "s.py")
	if err != nil || len(c.Rendezvous.Ports) != 8 || c.Rendezvous.Ports[0] != c.Rendezvous.Endpoints[0].Port {
		t.Errorf("candidate ports %v, %v", c.Rendezvous.Ports, err)
	}
}
