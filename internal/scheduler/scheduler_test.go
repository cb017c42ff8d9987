package scheduler

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// vars returns an environment from text such as NAME=VALUE NAME=VALUE.
func vars(text ...string) map[string]string {
	env := map[string]string{}
	for v := range strings.FieldsSeq(strings.Join(text, " ")) {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

func lookup(env map[string]string) Lookup {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func value[T any](is T, source string) Value[T] { return Value[T]{is, source} }

const step3 = "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=n[1-3] SLURM_NODEID=1 SLURMD_NODENAME=n2 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1"

// het has the variables of a process on n1 in a step over both components of a heterogeneous job: the step's list is
// sorted, and the nodes are numbered by component.
const het = "SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_HET_SIZE=2 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=n[1-3] SLURM_JOB_NODELIST=n[1-3] SLURM_JOB_NUM_NODES=3 " +
	"SLURM_JOB_NUM_NODES_HET_GROUP_0=1 SLURM_JOB_NODELIST_HET_GROUP_0=n3 SLURM_JOB_NUM_NODES_HET_GROUP_1=2 SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2] " +
	"SLURM_STEP_NUM_TASKS=3 SLURM_NODEID=1 SLURMD_NODENAME=n1"

func TestSlurmStep(t *testing.T) {
	id := value("slurm-12.0", "SLURM_JOB_ID=12 SLURM_STEP_ID=0")
	whole := Facts{
		Name: "slurm", Job: "12", RunID: id, PortKey: "12.0", Nodes: value(3, "SLURM_STEP_NUM_NODES=3"),
		Endpoint: value(
			"n1",
			"SLURM_STEP_NODELIST=n[1-3]",
		), NodeRank: value(1, "SLURM_NODEID=1"), IsHost: value(false, "SLURM_NODEID=1"),
	}
	hetero := Facts{
		Name: "slurm", Job: "5", RunID: value("slurm-5.0", "SLURM_JOB_ID=5 SLURM_STEP_ID=0"), PortKey: "5.0", Nodes: value(3, "SLURM_STEP_NUM_NODES=3"),
		Endpoint: value(
			"n3",
			"SLURM_STEP_NODELIST=n[1-3]",
		), NodeRank: value(1, "SLURM_NODEID=1"), IsHost: value(false, "SLURM_NODEID=1"),
	}
	tests := []struct {
		name   string
		env    map[string]string
		from   Facts
		change func(*Facts)
		err    string
	}{
		{"a step", vars(step3), whole, nil, ""},
		{"its first node", vars(step3, "SLURM_NODEID=0 SLURMD_NODENAME=n1"), whole, func(f *Facts) {
			f.NodeRank, f.IsHost = value(0, "SLURM_NODEID=0"), value(true, "SLURM_NODEID=0")
		}, ""},
		{"without node name", vars(step3, "SLURMD_NODENAME="), whole, nil, ""},
		{"requeued", vars(step3, "SLURM_RESTART_COUNT=2"), whole, func(f *Facts) {
			f.Attempt = value(2, "SLURM_RESTART_COUNT=2")
			f.RunID = value("slurm-12.0.r2", "SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_RESTART_COUNT=2")
		}, ""},
		{"time limit", vars(step3, "SLURM_JOB_END_TIME=1800000000"), whole, func(f *Facts) {
			f.Deadline = value(time.Unix(1800000000, 0), "SLURM_JOB_END_TIME=1800000000")
		}, ""},
		{"no time limit", vars(step3, "SLURM_JOB_END_TIME=never"), whole, nil, ""},
		{
			"older Slurm",
			vars("SLURM_JOBID=12 SLURM_STEPID=0 SLURM_NNODES=3 SLURM_NODELIST=n[1-3] SLURM_NODEID=1"),
			whole,
			func(f *Facts) {
				f.RunID.Source, f.Nodes.Source, f.Endpoint.Source = "SLURM_JOBID=12 SLURM_STEPID=0", "SLURM_NNODES=3", "SLURM_NODELIST=n[1-3]"
			},
			"",
		},
		{
			"a node of a larger job",
			vars(
				step3,
				"SLURM_STEP_NUM_NODES=1 SLURM_JOB_NUM_NODES=3 SLURM_STEP_NODELIST=n2 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
			),
			whole,
			func(f *Facts) {
				f.Nodes, f.Endpoint = value(1, "SLURM_STEP_NUM_NODES=1"), value("n2", "SLURM_STEP_NODELIST=n2")
				f.NodeRank, f.IsHost = value(0, "SLURM_NODEID=0"), value(true, "SLURM_NODEID=0")
				f.Notes = []string{"slurm job 12 has 3 nodes, but this step has one: it is a job of one node"}
			},
			"",
		},
		{
			"nodes listed in an order of their own",
			vars(step3, "SLURM_STEP_NODELIST=n[3,2,1] SLURM_NODEID=2 SLURMD_NODENAME=n3"),
			whole,
			func(f *Facts) {
				f.Endpoint = value("n3", "SLURM_STEP_NODELIST=n[3,2,1]")
				f.NodeRank = value(0, "SLURMD_NODENAME=n3 SLURM_STEP_NODELIST=n[3,2,1]")
				f.IsHost = value(true, f.NodeRank.Source)
			},
			"",
		},
		{"two tasks a node", vars(step3, "SLURM_STEP_NUM_TASKS=6 SLURM_PROCID=3"), whole, func(f *Facts) {
			f.Tasks, f.TaskRank, f.OneEach = value(
				6,
				"SLURM_STEP_NUM_TASKS=6",
			), value(
				3,
				"SLURM_PROCID=3",
			), "srun --ntasks-per-node=1 elasticrun ..."
		}, ""},
		{
			"two tasks on some nodes",
			vars(step3, "SLURM_STEP_NUM_TASKS= SLURM_STEP_TASKS_PER_NODE=2(x2),1 SLURM_PROCID=3"),
			whole,
			func(f *Facts) {
				f.Tasks, f.TaskRank, f.OneEach = value(
					5,
					"SLURM_STEP_TASKS_PER_NODE=2(x2),1",
				), value(
					3,
					"SLURM_PROCID=3",
				), "srun --ntasks-per-node=1 elasticrun ..."
			},
			"",
		},
		{"a heterogeneous job", vars(het), hetero, nil, ""},
		{"its first node", vars(het, "SLURM_NODEID=0 SLURMD_NODENAME=n3"), hetero, func(f *Facts) {
			f.NodeRank, f.IsHost = value(0, "SLURM_NODEID=0"), value(true, "SLURM_NODEID=0")
		}, ""},
		{"a component numbered by itself", vars(het, "SLURM_NODEID=0"), hetero, func(f *Facts) {
			f.NodeRank = value(1, "SLURMD_NODENAME=n1 SLURM_STEP_NODELIST=n[1-3]")
			f.IsHost = value(false, f.NodeRank.Source)
		}, ""},
		{
			"one component's id",
			vars(het, "SLURM_JOB_ID=6 SLURM_HET_JOB_ID=5"),
			hetero,
			func(f *Facts) { f.RunID.Source = "SLURM_HET_JOB_ID=5 SLURM_STEP_ID=0" },
			"",
		},
		{
			"a step of one component",
			vars(het, "SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_TASKS=2"),
			hetero,
			func(f *Facts) {
				f.Nodes, f.Endpoint = value(2, "SLURM_STEP_NUM_NODES=2"), value("n1", "SLURM_STEP_NODELIST=n[1-2]")
				f.NodeRank = value(0, "SLURMD_NODENAME=n1 SLURM_STEP_NODELIST=n[1-2]")
				f.IsHost = value(true, f.NodeRank.Source)
			},
			"",
		},

		{"components that are not listed", vars(het, "SLURM_JOB_NODELIST_HET_GROUP_0="), hetero, func(f *Facts) {
			f.Endpoint, f.NodeRank = value(
				"n1",
				"SLURM_STEP_NODELIST=n[1-3]",
			), value(
				0,
				"SLURMD_NODENAME=n1 SLURM_STEP_NODELIST=n[1-3]",
			)
			f.IsHost = value(true, f.NodeRank.Source)
		}, ""},

		{"a rank above the nodes", vars(step3, "SLURM_NODEID=3"), whole, func(f *Facts) {
			f.NodeRank = value(1, "SLURMD_NODENAME=n2 SLURM_STEP_NODELIST=n[1-3]")
			f.IsHost = value(false, f.NodeRank.Source)
		}, "SLURM_NODEID=3: must be below the number of nodes, SLURM_STEP_NUM_NODES=3"},
		{"a task above the tasks", vars(step3, "SLURM_STEP_NUM_TASKS=6 SLURM_PROCID=6"), whole, func(f *Facts) {
			f.Tasks, f.OneEach = value(6, "SLURM_STEP_NUM_TASKS=6"), "srun --ntasks-per-node=1 elasticrun ..."
		}, "SLURM_PROCID=6: must be below the number of tasks, SLURM_STEP_NUM_TASKS=6"},
		{"too short a list", vars(step3, "SLURM_STEP_NODELIST=n[1-2]"), whole, func(f *Facts) {
			f.Endpoint, f.IsHost = Value[string]{}, Value[bool]{}
		}, "SLURM_STEP_NODELIST=n[1-2]: lists 2 nodes, but the step has SLURM_STEP_NUM_NODES=3"},
		{"a broken list", vars(step3, "SLURM_STEP_NODELIST=n[1-3"), whole, func(f *Facts) {
			f.Endpoint, f.IsHost = Value[string]{}, Value[bool]{}
		}, `SLURM_STEP_NODELIST=n[1-3: host list "n[1-3", character 2: [ is not closed`},
		{
			"another machine",
			vars(step3, "SLURMD_NODENAME=n9"),
			whole,
			func(f *Facts) { f.IsHost = Value[bool]{} },
			"SLURMD_NODENAME=n9: is not in SLURM_STEP_NODELIST=n[1-3]",
		},
		{"no number", vars(step3, "SLURM_STEP_NUM_NODES=many"), whole, func(f *Facts) {
			f.Nodes, f.Endpoint, f.IsHost = Value[int]{}, Value[string]{}, Value[bool]{}
		}, "SLURM_STEP_NUM_NODES=many: must be a whole number between 1 and 1048576"},
		{
			"no number of tasks",
			vars(step3, "SLURM_STEP_NUM_TASKS= SLURM_STEP_TASKS_PER_NODE=2(3)"),
			whole,
			nil,
			`SLURM_STEP_TASKS_PER_NODE=2(3): "2(3)" must be a number, or N(xTIMES)`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.from
			if tt.change != nil {
				tt.change(&want)
			}
			got, err := Detect(lookup(tt.env), Host{})
			check(t, want, got, tt.err, err)
		})
	}
}

// The nodes after the first one, at most two, are endpoints too if they follow from the same list.
func TestMoreHosts(t *testing.T) {
	const step = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=%d SLURM_STEP_NODELIST=%s %s"
	const pod = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=1"
	for _, tt := range []struct {
		name, env string
		host      Host
		want      []string
	}{
		{name: "four nodes", env: fmt.Sprintf(step, 4, "n[1-4]", ""), want: []string{"n2", "n3"}},
		{name: "two nodes", env: fmt.Sprintf(step, 2, "n[1-2]", ""), want: []string{"n2"}},
		{name: "the same master", env: fmt.Sprintf(step, 3, "n[1-3]", "MASTER_ADDR=n1"), want: []string{"n2", "n3"}},
		{name: "another master", env: fmt.Sprintf(step, 3, "n[1-3]", "MASTER_ADDR=n9")},
		{
			name: "pods", env: pod, host: Host{Name: "train-1", Hosts: "10.0.0.9 train-1.sub.ns.svc.cluster.local train-1\n"},
			want: []string{"train-1.sub.ns.svc.cluster.local", "train-2.sub.ns.svc.cluster.local"},
		},
		{name: "pods without names", env: pod, host: Host{Name: "train-1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Detect(lookup(vars(tt.env)), tt.host)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.MoreHosts, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func check(t *testing.T, want, got Facts, problem string, err error) {
	t.Helper()
	want.MoreHosts = got.MoreHosts // TestMoreHosts checks them
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != problem {
		t.Errorf("the problem is\n%s, want\n%s", text, problem)
	}
}

// options are the options of every step, after its size.
const options = "--ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --wait=0 --cpu-bind=none"

func TestSlurmAllocation(t *testing.T) {
	const batch = "SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] SLURM_NODEID=0 SLURM_PROCID=0 SLURMD_NODENAME=n1 SLURM_JOB_CPUS_PER_NODE=8(x3) SLURM_TASKS_PER_NODE=2(x3)"
	const size3 = "--nodes=3 --ntasks=3 "
	tests := []struct {
		name   string
		env    map[string]string
		launch string
		note   string
	}{
		{"a batch script", vars(batch), size3 + options, ""},
		{"a batch script's own step", vars(batch, "SLURM_STEP_ID=4294967291"), size3 + options, ""},
		{
			"the shell of salloc, on a node",
			vars(batch, "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n1"),
			size3 + options,
			"",
		},
		{
			"the shell of salloc, elsewhere",
			vars("SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3]"),
			size3 + options,
			"",
		},
		{"one node", vars(batch, "SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1"), "", ""},
		{
			"one node, elsewhere",
			vars("SLURM_JOB_ID=12 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1"),
			"",
			"slurm job 12 has the node n1, which may not be this machine: srun --ntasks=1 elasticrun ... starts there",
		},
		{"CPUs by task", vars(batch, "SLURM_CPUS_PER_TASK=4"), size3 + options + " --cpus-per-task=8", ""},
		{"CPUs by task, for srun", vars(batch, "SRUN_CPUS_PER_TASK=4"), size3 + options + " --cpus-per-task=8", ""},
		{
			"CPUs by task, uneven", vars(batch, "SLURM_CPUS_PER_TASK=4 SLURM_JOB_CPUS_PER_NODE=8(x2),4"), size3 + options,
			"SLURM_CPUS_PER_TASK=4: an agent may get only this number of its node's CPUs, because the nodes have different numbers of CPUs",
		},
		{"GPUs by task", vars(batch, "SLURM_GPUS_PER_TASK=2"), size3 + options + " --gpus-per-node=4", ""},
		{
			"GPUs of a kind by task",
			vars(batch, "SLURM_GPUS_PER_TASK=a100:1"),
			size3 + options + " --gpus-per-node=a100:2",
			"",
		},
		{
			"GPUs by task, uneven", vars(batch, "SLURM_GPUS_PER_TASK=1 SLURM_TASKS_PER_NODE=2(x2),1"), size3 + options,
			"SLURM_GPUS_PER_TASK=1: an agent may get only this number of its node's GPUs; use --gpus-per-node instead",
		},
		{
			"a heterogeneous job",
			vars(
				batch,
				"SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n3 SLURM_HET_SIZE=2 SLURM_JOB_NUM_NODES_HET_GROUP_0=1 SLURM_JOB_NODELIST_HET_GROUP_0=n3",
				"SLURM_JOB_NUM_NODES_HET_GROUP_1=2 SLURM_JOB_NODELIST_HET_GROUP_1=n[1-2]",
			),
			"--het-group=0 --nodes=1 --ntasks=1 " + options + " PROG ARG : --het-group=1 --nodes=2 --ntasks=2 " + options, "",
		},
		{"nobody knows how many", vars("SLURM_JOB_ID=12"), "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Detect(lookup(tt.env), Host{})
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if tt.launch != "" {
				want = "srun " + tt.launch + " PROG ARG"
			}
			if diff := cmp.Diff(want, strings.Join(LaunchCommand(f.Launch, []string{"PROG", "ARG"}), " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.note, strings.Join(f.Notes, "; ")); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
	f, _ := Detect(lookup(vars(batch)), Host{})
	if f.Nodes != value(3, "SLURM_JOB_NUM_NODES=3") || f.Endpoint != value("n1", "SLURM_JOB_NODELIST=n[1-3]") ||
		f.RunID.Is != "slurm-12" ||
		f.PortKey != "" {
		t.Errorf("the batch script is told %+v", f)
	}
}

// For srun a lone colon starts the next component of the job, at any position.
func TestLaunchCommandColon(t *testing.T) {
	const script = `printf '<%s>' "$0" "$@"`
	command := LaunchCommand(
		[][]string{{"--nodes=2"}, {"--nodes=1"}},
		[]string{"sh", "-c", script, "it's", "", "a b", ":", "$x"},
	)
	var colons []int
	for i, word := range command {
		if word == ":" {
			colons = append(colons, i)
		}
	}
	if diff := cmp.Diff([]int{5}, colons); diff != "" {
		t.Fatalf("%q (-want +got):\n%s", command, diff)
	}
	out, err := exec.CommandContext(t.Context(), command[2], command[3:5]...).Output()
	if diff := cmp.Diff("<it's><><a b><:><$x>", string(out)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestParseCounts(t *testing.T) {
	for text, want := range map[string][]counted{
		"8": {{8, 1}}, "8(x2)": {{8, 2}}, "8(x2),4,2(x10)": {{8, 2}, {4, 1}, {2, 10}},
		"": nil, "8(x2": nil, "8(2)": nil, "8(x0)": nil, "0": nil, "-1": nil, "8,": nil, "a": nil, "1(x1048577)": nil, "1(x1048576),1": nil,
	} {
		got, err := parseCounts(text)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(counted{})); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestLaunchEnvironment(t *testing.T) {
	for _, tt := range []struct{ name, env, want string }{
		{"all by default", "S=s A=a", "S=s A=a"},
		{"none", "S=s SLURM_EXPORT_ENV=NONE", "S=s SLURM_EXPORT_ENV=S"},
		{"none and more", "S=s SLURM_EXPORT_ENV=none,A", "S=s SLURM_EXPORT_ENV=S"},
		{"nil", "S=s SLURM_EXPORT_ENV=NIL", "S=s SLURM_EXPORT_ENV=S"},
		{"empty", "S=s SLURM_EXPORT_ENV=", "S=s SLURM_EXPORT_ENV=S"},
		{"a list", "S=s T=t SLURM_EXPORT_ENV=A,B='x,y'", "S=s T=t SLURM_EXPORT_ENV=A,B='x,y',S,T"},
		{"all", "S=s SLURM_EXPORT_ENV=ALL", "S=s SLURM_EXPORT_ENV=ALL"},
		{"all and more", "S=s SLURM_EXPORT_ENV=A=1,all", "S=s SLURM_EXPORT_ENV=A=1,all"},
		{"the variable that overrides", "SRUN_EXPORT_ENV=NONE S=s SLURM_EXPORT_ENV=ALL", "SRUN_EXPORT_ENV=S S=s SLURM_EXPORT_ENV=ALL"},
		{"nothing to pass", "A=a SLURM_EXPORT_ENV=NONE SS=x", "A=a SLURM_EXPORT_ENV=NONE SS=x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := strings.Fields(tt.env)
			if got := strings.Join(LaunchEnvironment(env, "S", "T"), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := strings.Join(env, " "); got != tt.env {
				t.Errorf("the argument became %s", got)
			}
		})
	}
}

func TestMasterAddr(t *testing.T) {
	tests := []struct {
		name        string
		env         map[string]string
		want        string // the endpoint, and where it stands
		scheduler   string
		knowsIsHost bool
	}{
		{"alone", vars("MASTER_ADDR=h MASTER_PORT=29511"), "h:29511 MASTER_ADDR=h MASTER_PORT=29511", "plain", false},
		{"without port", vars("MASTER_ADDR=h"), "h MASTER_ADDR=h", "plain", false},
		{"IPv6", vars("MASTER_ADDR=fd00::1 MASTER_PORT=5"), "[fd00::1]:5 MASTER_ADDR=fd00::1 MASTER_PORT=5", "plain", false},
		{
			"IPv6 in brackets",
			vars("MASTER_ADDR=[fd00::1] MASTER_PORT=5"),
			"[fd00::1]:5 MASTER_ADDR=[fd00::1] MASTER_PORT=5",
			"plain",
			false,
		},
		{"a port alone", vars("MASTER_PORT=29511"), " ", "", false},
		{"empty", vars("MASTER_ADDR="), " ", "", false},
		{
			"before Slurm's",
			vars(step3, "MASTER_ADDR=h"),
			"h MASTER_ADDR=h, overriding SLURM_STEP_NODELIST=n[1-3]",
			"slurm",
			false,
		},
		{
			"the same as Slurm's",
			vars(step3, "MASTER_ADDR=n1 MASTER_PORT=7"),
			"n1:7 MASTER_ADDR=n1 MASTER_PORT=7",
			"slurm",
			true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Detect(lookup(tt.env), Host{})
			if got := f.Endpoint.Is + " " + f.Endpoint.Source; err != nil || got != tt.want || f.Name != tt.scheduler ||
				f.IsHost.Known() != tt.knowsIsHost {
				t.Errorf("got %q by %s, is host %v, %v", got, f.Name, f.IsHost, err)
			}
		})
	}
}

func TestPorts(t *testing.T) {
	seen := map[int]string{}
	for _, key := range []string{"12.0", "12.1", "13.0", "1.20"} {
		ports := Ports(key)
		if diff := cmp.Diff(ports, Ports(key)); diff != "" {
			t.Errorf("%s: not the same twice:\n%s", key, diff)
		}
		if len(ports) != 8 {
			t.Errorf("%s: %d ports", key, len(ports))
		}
		if other, taken := seen[ports[0]]; taken {
			t.Errorf("%s and %s have the same first port", key, other)
		}
		seen[ports[0]] = key
		own := map[int]bool{}
		for _, p := range ports {
			if own[p] || p < 20000 || p > 29999 || p == 29400 || p == 29500 {
				t.Errorf("%s: %v", key, ports)
			}
			own[p] = true
		}
	}
	// Agents of different releases may meet, so all releases must compute the same ports.
	if diff := cmp.Diff([]int{28932, 22538, 21004, 22822, 23351, 23947, 29374, 24074}, Ports("12.0")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodeAddr(t *testing.T) {
	for shown, want := range map[string]string{
		"NodeName=n1 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.1 NodeHostName=n1 Version=22.05.8\n": "10.0.0.1",
		"NodeName=n1\n   NodeAddr=fd00::1 NodeHostName=n1\n":                                           "fd00::1",
		"Node n9 not found": "",
		"XNodeAddr=1":       "",
	} {
		if got := nodeAddr(shown); got != want {
			t.Errorf("%q: got %q, want %q", shown, got, want)
		}
	}
}

// NodeAddr keeps a bounded part of scontrol's output. Its error includes scontrol's last line.
func TestAskNodeAddr(t *testing.T) {
	for _, tt := range []struct{ script, addr, err string }{
		{script: `test "$*" = "--oneliner show node n1" && echo "NodeName=n1 NodeAddr=10.0.0.1"`, addr: "10.0.0.1"},
		{
			script: "head -c 1048576 /dev/zero; echo ' NodeAddr=10.0.0.1'",
			err:    "ask scontrol for the node n1: the reply has no NodeAddr",
		},
		{
			script: "echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1",
			err:    "ask scontrol for the node n1: exit status 1 (slurm_load_node error: Unable to contact slurm controller)",
		},
	} {
		dir := t.TempDir()
		t.Setenv("PATH", dir+":/usr/bin:/bin")
		syscall.ForkLock.RLock() // a process forked now would inherit the file: "text file busy"
		err := os.WriteFile(dir+"/scontrol", []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
		addr, err := NodeAddr(t.Context(), "n1")
		if addr != tt.addr || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%q, %v; want %q, %s", addr, err, tt.addr, tt.err)
		}
	}
}

func TestNobody(t *testing.T) {
	got, err := Detect(lookup(nil), Host{Name: "train-0"})
	check(t, Facts{}, got, "", err)
	got, err = Detect(lookup(vars("RANK=1 WORLD_SIZE=2 SLURM_CONF=/etc/slurm.conf PMI_RANK=0")), Host{})
	check(t, Facts{}, got, "", err)
}

func TestPortKey(t *testing.T) {
	for _, tt := range [][2]string{
		{"slurm-12.0", "12.0"},
		{"slurm-12.3.r2", "12.3"},
		{"slurm-12", ""},
		{"slurm-12.", ""},
		{"slurm-.3", ""},
		{"slurm-a.0", ""},
		{"12.0", ""},
		{"openmpi-12.0", ""},
		{"", ""},
	} {
		if got := PortKey(tt[0]); got != tt[1] {
			t.Errorf("%q: %q, want %q", tt[0], got, tt[1])
		}
	}
	f, err := Detect(lookup(vars("SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_RESTART_COUNT=2")), Host{})
	if err != nil || f.PortKey != PortKey(f.RunID.Is) {
		t.Errorf("agents derive ports from %q, and whoever looks from %q (%v)", f.PortKey, PortKey(f.RunID.Is), err)
	}
}
