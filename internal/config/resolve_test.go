package config

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// defaults returns the Config of a command line without flags and script.
func defaults() *Config {
	return &Config{
		MinNodes: 1, MaxNodes: 1, NodesMultiple: 1, NprocPerNode: 1, Role: "default",
		RunID: "fresh",
		Rendezvous: Rendezvous{
			Backend: "c10d", Endpoint: "localhost:0", Endpoints: []HostPort{{"localhost", 0}}, MasterAddr: "127.0.0.1",
			Hint: -1, Expected: 1,
			Settings:      rdzvconf.Defaults("c10d"),
			MaxNodeLosses: 3, RejoinTimeout: 40 * time.Second, Grow: "now", MinUptime: 10 * time.Second,
		},
		MonitorInterval:    100 * time.Millisecond,
		Signals:            []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT},
		SignalNames:        "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
		ShutdownTimeout:    30 * time.Second,
		RestartGrace:       30 * time.Second,
		ExitBarrierTimeout: 300 * time.Second,
		ErrorExitTimeout:   60 * time.Second,
		HangTimeout:        HangTimeout{Auto: true},
		HangAction:         "report",
		PreemptGrace:       time.Minute,
		PreemptExitCode:    79,
		OnSIGTERM:          "leave",
		PreflightTimeout:   60 * time.Second,
		EventLogHandler:    "null", LogFormat: "auto", LogLevel: zerolog.WarnLevel,
	}
}

// resolveArgs resolves a command line without environment and config file.
func resolveArgs(counter Counter, args ...string) (*Config, error) {
	return resolveIn(surroundings{Counter: counter}, args...)
}

// vars is a process environment.
type vars map[string]string

func (v vars) lookup(name string) (string, bool) { value, ok := v[name]; return value, ok }

// resolveIn resolves a command line in the given surroundings. Nil fields count as empty.
func resolveIn(from surroundings, args ...string) (*Config, error) {
	from.newID = func() string { return "fresh" }
	if from.Counter == nil {
		from.Counter = machine{}
	}
	if from.env == nil {
		from.env = vars(nil).lookup
	}
	if from.secret == nil {
		from.secret = readSecret
	}
	line, err := splitArgs(args)
	if err != nil {
		return nil, err
	}
	set := flagSet(Flags())
	if err := set.Parse(line.options); err != nil {
		return nil, err
	}
	var settings []Setting
	for _, f := range Flags() {
		if f.Kind == KindAction {
			continue
		}
		s := Setting{Name: f.Name, Value: set.Lookup(f.Name).Value.String(), Switch: f.Kind == KindBool}
		if set.Changed(f.Name) {
			s.Source = Source{Kind: FromFlag}
		}
		settings = append(settings, s)
	}
	return resolve(Flags(), line.command, settings, from)
}

// resolved is resolveIn for a command line that is accepted, without its script.
func resolved(t *testing.T, from surroundings, args ...string) *Config {
	t.Helper()
	c, err := resolveIn(from, append(slices.Clip(args), "s.py")...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return c
}

// wantRefusal checks that err is a *UsageError with the text want. input is what it refuses.
func wantRefusal(t *testing.T, input any, err error, want string) {
	t.Helper()
	if usage, ok := errors.AsType[*UsageError](err); !ok || usage.Error() != want {
		t.Errorf("%q:\ngot  %v (%T)\nwant %s, a *UsageError", input, err, err, want)
	}
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		machine machine
		change  func(*Config)
	}{
		{"nothing", nil, machine{}, func(*Config) {}},
		{"nnodes range", []string{"--nnodes", "1:1"}, machine{}, func(*Config) {}},
		{"nproc number", []string{"--nproc-per-node", "8"}, machine{}, func(c *Config) { c.NprocPerNode = 8 }},
		{"nproc number with blanks", []string{"--nproc-per-node= 8 "}, machine{}, func(c *Config) { c.NprocPerNode = 8 }},
		{"nproc cpu", []string{"--nproc-per-node", "cpu"}, machine{cpus: 6, gpus: 2}, func(c *Config) { c.NprocPerNode = 6 }},
		{"nproc gpu", []string{"--nproc-per-node", "gpu"}, machine{cpus: 6, gpus: 2}, func(c *Config) { c.NprocPerNode = 2 }},
		{"nproc xpu", []string{"--nproc-per-node", "xpu"}, machine{cpus: 6, xpus: 3}, func(c *Config) { c.NprocPerNode = 3 }},
		{
			"nproc auto, xpus",
			[]string{"--nproc-per-node", "auto"},
			machine{cpus: 6, xpus: 3},
			func(c *Config) { c.NprocPerNode = 3 },
		},
		{
			"nproc auto, an integrated GPU alone",
			[]string{"--nproc-per-node", "auto"},
			machine{cpus: 6, gpus: 1, xpus: 1, integrated: true},
			func(c *Config) { c.NprocPerNode = 6 },
		},
		{
			"nproc auto, gpus",
			[]string{"--nproc-per-node", "auto"},
			machine{cpus: 6, gpus: 2},
			func(c *Config) { c.NprocPerNode = 2 },
		},
		{"nproc auto, none", []string{"--nproc-per-node", "auto"}, machine{cpus: 6}, func(c *Config) { c.NprocPerNode = 6 }},
		{
			"nproc auto, unclear",
			[]string{"--nproc-per-node", "auto"},
			machine{cpus: 6, err: errors.New("no driver")},
			func(c *Config) {
				c.NprocPerNode = 6
				c.Warnings = []string{"--nproc-per-node=auto: cannot count the GPUs, so the number of CPUs is used: no driver"}
			},
		},
		{"role", []string{"--role", "trainer"}, machine{}, func(c *Config) { c.Role = "trainer" }},
		{"virtual local rank", []string{"--virtual-local-rank"}, machine{}, func(c *Config) { c.VirtualLocalRank = true }},
		{"numa", []string{"--numa-binding", "core-complex"}, machine{}, func(c *Config) { c.NumaBinding = "core-complex" }},
		{"module", []string{"-m"}, machine{}, func(c *Config) { c.Module = true }},
		{"no python", []string{"--no-python"}, machine{}, func(c *Config) { c.NoPython = true }},
		{"start method", []string{"--start-method", "fork"}, machine{}, func(*Config) {}},
		{
			"output",
			[]string{
				"--log-dir",
				"d",
				"-r3",
				"-t",
				"0:1,1:2",
				"--local-ranks-filter",
				"1,0",
				"--duplicate-stdout-filters",
				"a,b,,c",
				"--duplicate_stderr_filters=x",
			},
			machine{},
			func(c *Config) {
				c.LogDir = "d"
				c.Redirects = workerlog.StreamSpec{Default: 3}
				c.Tee = workerlog.StreamSpec{
					ByRank: []workerlog.StreamRange{
						{RankRange: workerlog.RankRange{}, Streams: 1},
						{RankRange: workerlog.RankRange{First: 1, Last: 1}, Streams: 2},
					},
				}
				c.LocalRanksFilter = workerlog.RankSet{{}, {First: 1, Last: 1}}
				c.DuplicateStdoutFilters = []string{"a", "b,c"}
				c.DuplicateStderrFilters = []string{"x"}
			},
		},
		{"hangs", []string{"--hang-timeout=90s", "--hang-action=stop", `--step-pattern=step (\d+)`}, machine{}, func(c *Config) {
			c.HangTimeout, c.HangAction, c.StepPattern = HangTimeout{After: 90 * time.Second}, "stop", `step (\d+)`
		}},
		{"no hangs", []string{"--hang-timeout=off"}, machine{}, func(c *Config) { c.HangTimeout = HangTimeout{} }},
		{"an action without hangs", []string{"--hang-timeout=off", "--hang-action=stop"}, machine{}, func(c *Config) {
			c.HangTimeout, c.HangAction = HangTimeout{}, "stop"
			c.Warnings = []string{"--hang-action=stop: has no effect with --hang-timeout=off"}
		}},
		{"hangs of 0", []string{"--hang-timeout=0"}, machine{}, func(c *Config) { c.HangTimeout = HangTimeout{} }},
		{"restarts", []string{"--max-restarts", "3"}, machine{}, func(c *Config) { c.MaxRestarts = 3 }},
		{
			"times",
			[]string{"--shutdown-timeout=0", "--exit-barrier-timeout=0", "--error-exit-timeout=0", "--monitor-interval=2.5"},
			machine{},
			func(c *Config) {
				c.ShutdownTimeout, c.RestartGrace, c.ExitBarrierTimeout, c.ErrorExitTimeout = 0, 0, 0, 0
				c.ExitBarrierGiven = true
				c.MonitorInterval = 2500 * time.Millisecond
				c.Rendezvous.RejoinTimeout = 15 * time.Second // the time after which a silent node is lost
			},
		},
		{"report", []string{"--report", "r-${node_rank}.json", "--error-exit-timeout=1.5"}, machine{}, func(c *Config) {
			c.Report, c.ErrorExitTimeout = "r-${node_rank}.json", 1500*time.Millisecond
		}},
		{"durations", []string{"--shutdown-timeout=1m", "--monitor-interval= 250ms "}, machine{}, func(c *Config) {
			c.ShutdownTimeout, c.RestartGrace, c.Rendezvous.RejoinTimeout = time.Minute, time.Minute, 70*time.Second
			c.MonitorInterval = 250 * time.Millisecond
		}},
		{"decimals of seconds", []string{"--shutdown-timeout=0.25"}, machine{}, func(c *Config) {
			c.ShutdownTimeout, c.RestartGrace = 250*time.Millisecond, 250*time.Millisecond
			c.Rendezvous.RejoinTimeout = 15 * time.Second
		}},
		{
			"a grace of its own for restarts",
			[]string{"--restart-grace=60.5", "--shutdown-timeout=5"},
			machine{},
			func(c *Config) {
				c.ShutdownTimeout, c.RestartGrace = 5*time.Second, 60500*time.Millisecond
				c.Rendezvous.RejoinTimeout = 70500 * time.Millisecond
			},
		},
		{"no grace for restarts", []string{"--restart-grace=0"}, machine{}, func(c *Config) {
			c.RestartGrace, c.Rendezvous.RejoinTimeout = 0, 15*time.Second
		}},
		{
			"membership",
			[]string{
				"--restart-window=3600",
				"--max-node-losses=0",
				"--rejoin-timeout=30.5",
				"--grow=next-restart",
				"--min-uptime=0",
			},
			machine{},
			func(c *Config) {
				v := &c.Rendezvous
				v.RestartWindow, v.MaxNodeLosses, v.RejoinTimeout, v.Grow, v.MinUptime = time.Hour, 0, 30500*time.Millisecond, "next-restart", 0
			},
		},
		{"signals", []string{"--signals-to-handle=SIGUSR1, SIGTERM,SIGUSR1"}, machine{}, func(c *Config) {
			c.Signals, c.SignalNames = []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM}, "SIGUSR1, SIGTERM,SIGUSR1"
		}},
		{"unknown signals", []string{"--signals-to-handle=SIGTERM,SIGFOO,TERM"}, machine{}, func(c *Config) {
			c.Signals, c.SignalNames = []syscall.Signal{syscall.SIGTERM}, "SIGTERM,SIGFOO,TERM"
			c.Warnings = []string{
				"--signals-to-handle=SIGTERM,SIGFOO,TERM: skipping the unknown signal SIGFOO",
				"--signals-to-handle=SIGTERM,SIGFOO,TERM: skipping the unknown signal TERM",
			}
		}},
		{"no signals", []string{"--signals-to-handle="}, machine{}, func(c *Config) { c.Signals, c.SignalNames = nil, "" }},
		{"log", []string{"--log-format=json", "--log-level=INFO", "--event-log-handler=console"}, machine{}, func(c *Config) {
			c.LogFormat, c.LogLevel, c.EventLogHandler = "json", zerolog.InfoLevel, "console"
		}},
		{"event handler of torchrun", []string{"--event-log-handler=dynamic_rendezvous"}, machine{}, func(*Config) {}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := resolved(t, surroundings{Counter: tt.machine}, tt.args...)
			want := defaults()
			want.Script = "s.py"
			tt.change(want)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Config{}, "Settings"), cmpopts.EquateEmpty(), cmp.AllowUnexported(exitcode.Map{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunPath(t *testing.T) {
	c, err := resolveArgs(machine{}, "--run-path", "--no-python", "-m", "/abs/s.py")
	if err != nil {
		t.Fatal(err)
	}
	if c.NoPython || c.Module {
		t.Errorf("no-python %v, module %v: --run-path must win", c.NoPython, c.Module)
	}
}

func TestResolveRefuses(t *testing.T) {
	check := func(args []string, want string) {
		t.Run(args[0], func(t *testing.T) {
			_, err := resolveArgs(machine{cpus: 1}, args...)
			wantRefusal(t, args, err, want)
		})
	}
	for _, tt := range []struct{ args, problem string }{ // the problem is that of the first flag
		{"--nnodes=1:", "must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{"--nnodes=0:1", "must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{"--nnodes=-1", "must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{"--nnodes=99999999999999999999", "must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{"--nnodes=1048577", "must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{
			"--nproc-per-node=0",
			"must be auto, cpu, gpu, xpu or a number between 1 and 65536; for any other device give the number",
		},
		{"--numa-binding=all", "must be one of node, socket, exclusive, core-complex"},
		{"--module --no-python", "cannot be combined with --no-python: a module needs Python"},
		{"--run-path", `the script must be an absolute path, not "s"`},
		{"--start-method=thread", "must be one of spawn, fork, forkserver"},
		{"--logs-specs=mine", "names a Python class, which elasticrun cannot load: use --log-dir, --redirects and --tee"},
		{"--max-restarts=-1", "must be between 0 and 1073741824"},
		{"--max-restarts=99999999999999999999", "must be between 0 and 1073741824"},
		{"--monitor-interval=0", "must be above 0"},
		{"--monitor-interval=nan", "must be a number of seconds, or a duration such as 30s or 5m"},
		{"--monitor-interval=1e999", "must be at most 1000000000 seconds"},
		{"--shutdown-timeout=-1s", "must not be negative"},
		{"--shutdown-timeout=-1", "must not be negative"},
		{"--exit-barrier-timeout=-0.1", "must not be negative"},
		{"--error-exit-timeout=soon", "must be a number of seconds, or a duration such as 30s or 5m"},
		{"--hang-timeout=never", "must be auto, off, a number of seconds, or a duration such as 90s or 10m"},
		{"--hang-timeout=10ms", "must be at least a second; 0 or off looks for no hang"},
		{"--hang-action=kill", "must be one of report, restart, stop"},
		{"--signals-to-handle=SIGTERM,SIGKILL", "SIGKILL cannot be handled by any process"},
		{"--signals-to-handle=SIGSTOP", "SIGSTOP cannot be handled by any process"},
		{"--signals-to-handle=SIGCHLD", "SIGCHLD is used by the launcher itself"},
		{"--log-format=xml", "must be one of auto, console, json"},
		{"--event-log-handler=mine", "must be one of null, console, dynamic_rendezvous"},
		{"--restart-window=-1", "must not be negative"},
		{"--max-node-losses=often", "must be a whole number"},
		{"--grow=later", "must be one of now, next-restart, never"},
		{"--min-uptime=x", "must be a number of seconds, or a duration such as 30s or 5m"},
		{"--rejoin-timeout=30", "must be above --shutdown-timeout (30 seconds), the time in which workers may stop"},
		{
			"--rejoin-timeout=40 --restart-grace=41",
			"must be above --restart-grace (41 seconds), the time in which workers may stop",
		},
		{"--restart-grace=-1", "must not be negative"},
		{
			"--rejoin-timeout=1 --shutdown-timeout=0.5",
			"must be at least 15 seconds (keep_alive_interval × keep_alive_max_attempt), the time after which a silent node is lost",
		},
		{"--worker-store-port=0", "must be N or LO-HI, each a port between 1 and 65535"},
		{"--worker-store-port=1-65536", "must be N or LO-HI, each a port between 1 and 65535"},
		{"--worker-store-port=5-", "must be N or LO-HI, each a port between 1 and 65535"},
		{"--worker-store-port=9-5", "LO must not be above HI: did you mean 5-9?"},
		{"--exit-code-map=137", `"137" is not FROM=TO`},
		{"--rdzv-id=a/b", "must not be empty or contain a slash: it is part of the log folder's name"},
		{"--rdzv-endpoint=host:x", `the port "x" must be a number between 0 and 65535`},
		{"--rdzv-conf=a", "a has no value: write a=VALUE"},
		{"--rdzv-conf=rank=1", "rank is set by --node-rank"},
		{"--master-port=65536", "must be between 0 and 65535"},
		{"--master-port=http", "must be a whole number"},
		{"--master-addr=host:29500", `"host:29500" is not a host name or an address`},
	} {
		args := strings.Fields(tt.args)
		check(append(args, "s"), args[0]+": "+tt.problem)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{""}, "the script's name is empty: elasticrun [flags] SCRIPT [ARGS...]"},
		{[]string{"--nnodes=", "s"}, `--nnodes="": must be N or MIN:MAX, each a whole number between 1 and 1048576`},
		{
			[]string{"--nproc=hpu", "s"},
			"--nproc-per-node=hpu: must be auto, cpu, gpu, xpu or a number between 1 and 65536; for any other device give the number",
		},
		{
			[]string{"--nproc=2.5", "s"},
			"--nproc-per-node=2.5: must be auto, cpu, gpu, xpu or a number between 1 and 65536; for any other device give the number",
		},
		{[]string{"--nproc=gpu", "s"}, "--nproc-per-node=gpu: there is no GPU on this machine: give a number, or cpu"},
		{[]string{"--nproc=xpu", "s"}, "--nproc-per-node=xpu: there is no GPU on this machine: give a number, or cpu"},
		{[]string{"--role=", "s"}, `--role="": must not be empty`},
		{[]string{"--node-rank", "-1", "s"}, "--node-rank=-1: must be between 0 and 1048576"},
		{[]string{"--node-rank", "x", "s"}, "--node-rank=x: must be a whole number"},
		{
			[]string{"--shutdown-timeout=", "s"},
			`--shutdown-timeout="": must be a number of seconds, or a duration such as 30s or 5m`,
		},
		{
			[]string{"--step-pattern=step (", "s"},
			"--step-pattern=\"step (\": is not a regular expression: error parsing regexp: missing closing ): `step (`",
		},
		{
			[]string{"--rdzv-id=", "s"},
			`--rdzv-id="": must not be empty or contain a slash: it is part of the log folder's name`,
		},
		{[]string{"--rdzv-backend=", "s"}, `--rdzv-backend="": must not be empty`},
		{
			[]string{"--rdzv-backend=static", "--rdzv-endpoint=host", "s"},
			"--rdzv-endpoint=host: the static backend needs HOST:PORT",
		},
		{[]string{"--rdzv-backend=static", "--node-rank=1", "s"}, "--node-rank=1: must be below the number of nodes, 1"},
		{[]string{"--local-addr=a b", "s"}, `--local-addr="a b": "a b" is not a host name or an address`},
		{
			[]string{"--role=a\nb", "--nnodes=0\n", "s"},
			`--nnodes="0\n": must be N or MIN:MAX, each a whole number between 1 and 1048576`,
		},
	} {
		check(tt.args, tt.want)
	}
	for _, tt := range []struct {
		counter Counter
		kind    string
		want    string
	}{
		{machine{xpus: 1}, "gpu", "there is no GPU of NVIDIA or AMD on this machine: give xpu for the GPUs that there are, or a number"},
		{machine{gpus: 1}, "xpu", "there is no GPU of Intel on this machine: give gpu for the GPUs that there are, or a number"},
	} {
		if _, err := resolveArgs(tt.counter, "--nproc="+tt.kind, "s"); err == nil ||
			err.Error() != "--nproc-per-node="+tt.kind+": "+tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	_, err := resolveArgs(machine{err: errors.New("driver is gone")}, "--nproc=gpu", "s")
	if want := "--nproc-per-node=gpu: cannot count the GPUs (driver is gone): give a number"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestResolveRefusesStreams checks that errors of pkg/workerlog's parsers name the flag.
// A selection of workers or lines that selects nothing is a warning.
func TestSelectsNothing(t *testing.T) {
	const two = "--nproc-per-node=2"
	for _, tt := range []struct{ args, want []string }{
		{[]string{two, "--local-ranks-filter=1", "--redirects=0:3", "--tee=1", "--duplicate-stdout-filters=x"}, nil},
		{[]string{two, "--local-ranks-filter=1,7", "--tee=g9:3", "--duplicate-stderr-filters=x"}, nil},
		{[]string{two, "--redirects=9:0"}, nil},
		{[]string{two, "--local-ranks-filter=7"}, []string{
			"--local-ranks-filter=7: selects no worker, so the console shows no output: the local ranks are 0-1",
		}},
		{[]string{two, "--redirects=9:3", "--tee=2-5:1"}, []string{
			"--redirects=9:3: selects no worker: the local ranks are 0-1",
			"--tee=2-5:1: selects no worker: the local ranks are 0-1",
		}},
		{[]string{"--tee=2", "--duplicate-stdout-filters=x", "--duplicate-stderr-filters=y"}, []string{
			"--duplicate-stdout-filters=x: selects no line: only lines that --tee selects are copied; give --tee=1 or 3",
		}},
		{[]string{"--duplicate-stderr-filters=y"}, []string{
			"--duplicate-stderr-filters=y: selects no line: only lines that --tee selects are copied; give --tee=2 or 3",
		}},
	} {
		c := resolved(t, surroundings{}, tt.args...)
		if diff := cmp.Diff(tt.want, c.Warnings); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}

func TestResolveRefusesStreams(t *testing.T) {
	for _, arg := range []string{"--redirects=9", "--tee=0:9", "--tee=", "--local-ranks-filter=x"} {
		_, err := resolveArgs(machine{}, arg, "s")
		if usage, ok := errors.AsType[*UsageError](err); !ok || usage.Where == "" || usage.Where[:5] != arg[:5] {
			t.Errorf("%s: got %v, want a *UsageError that names it", arg, err)
		}
	}
}

func TestCommand(t *testing.T) {
	tests := []struct {
		name    string
		cfg     Config
		program string
		args    []string
	}{
		{
			"script",
			Config{Script: "train.py", ScriptArgs: []string{"--lr", "0.1"}},
			"/py",
			[]string{"-u", "train.py", "--lr", "0.1"},
		},
		{"module", Config{Script: "pkg.train", Module: true}, "/py", []string{"-u", "-m", "pkg.train"}},
		{
			"program",
			Config{Script: "./run", NoPython: true, ScriptArgs: []string{"", "$local_rank"}},
			"./run",
			[]string{"", "$local_rank"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			program, args := tt.cfg.Command("/py")
			if diff := cmp.Diff(tt.args, args); program != tt.program || diff != "" {
				t.Errorf("program %q, args (-want +got):\n%s", program, diff)
			}
		})
	}
}

// TestPreflightTime checks that --rejoin-timeout leaves time for --preflight-cmd.
func TestPreflightTime(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		rejoin time.Duration
		warns  int
	}{
		{name: "no check", rejoin: 40 * time.Second},
		{name: "a check", args: []string{"--preflight-cmd=true"}, rejoin: 100 * time.Second},
		{name: "a short check", args: []string{"--preflight-cmd=true", "--preflight-timeout=5"}, rejoin: 45 * time.Second},
		{name: "too late", args: []string{"--preflight-cmd=true", "--rejoin-timeout=90"}, rejoin: 90 * time.Second, warns: 1},
		{name: "in time", args: []string{"--preflight-cmd=true", "--rejoin-timeout=91"}, rejoin: 91 * time.Second},
		{name: "a bound of nothing", args: []string{"--preflight-timeout=5"}, rejoin: 40 * time.Second, warns: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := resolved(t, surroundings{}, tt.args...)
			if c.Rendezvous.RejoinTimeout != tt.rejoin || len(c.Warnings) != tt.warns {
				t.Errorf("rejoin timeout %v, want %v; warnings %q", c.Rendezvous.RejoinTimeout, tt.rejoin, c.Warnings)
			}
		})
	}
}
