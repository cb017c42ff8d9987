package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/internal/exitcode"
)

// typeOneOf is the refusal of several nodes without an endpoint. The command lines follow it.
const typeOneOf = "several nodes need an endpoint at which they meet: type the first line in several terminals of this " +
	"machine, or the second on every machine"

// clean gives the test an empty working directory and config folder, and unsets every variable of the table.
func clean(t *testing.T) {
	t.Helper()
	names := []string{SecretEnv, workerEnv}
	names = append(names, schedulerVariables()...)
	for _, f := range Flags() {
		names = append(names, f.Env...)
	}
	for _, name := range names {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	home, here := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "xdg"))
	chmod(t, here, 0o755) // whatever the umask
	t.Chdir(here)
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func setEnv(t *testing.T, vars ...string) {
	t.Helper()
	for _, v := range vars {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	chmod(t, path, 0o644)
}

// load calls Load with a command line in one string.
func load(line string) (*Config, error) {
	return Load(strings.Fields(line), machine{cpus: 4, gpus: 2})
}

func settingNamed(c *Config, name string) Setting {
	for _, s := range c.Settings {
		if s.Name == name {
			return s
		}
	}
	return Setting{}
}

func TestPrecedence(t *testing.T) {
	none, file, flag := Source{}, Source{FromFile, "elasticrun.yaml"}, Source{Kind: FromFlag}
	env := func(name string) Source { return Source{FromEnv, name} }
	restarts := func(value string, from Source) Setting { return Setting{"max-restarts", value, from, false} }
	tests := []struct {
		name, line, env, file string
		want                  Setting
	}{
		{"default", "s.py", "", "", restarts("0", none)},
		{"file", "s.py", "", "max-restarts: 1", restarts("1", file)},
		{"file, underscores", "s.py", "", "max_restarts: 1", restarts("1", file)},
		{"env beats file", "s.py", "PET_MAX_RESTARTS=2", "max-restarts: 1", restarts("2", env("PET_MAX_RESTARTS"))},
		{"flag beats env", "--max-restarts=3 s.py", "PET_MAX_RESTARTS=2", "max-restarts: 1", restarts("3", flag)},
		{"flag with the default's value", "--max-restarts=0 s.py", "PET_MAX_RESTARTS=2", "", restarts("0", flag)},
		{"the last of two flags", "--max-restarts=3 --max_restarts 4 s.py", "", "", restarts("4", flag)},
		{"flag behind the script does not count", "s.py --max-restarts=3", "", "", restarts("0", none)},
		{"switch by flag", "--module s.py", "PET_MODULE=0", "", Setting{"module", "true", flag, true}},
		{"switch by env", "s.py", "PET_MODULE=0", "module: true", Setting{"module", "0", env("PET_MODULE"), true}},
		{"switch by file", "s.py", "", "module: true", Setting{"module", "true", file, true}},
		{"empty variable is set", "s.py", "PET_LOG_DIR=", "log-dir: x", Setting{"log-dir", "", env("PET_LOG_DIR"), false}},
		{
			"first of two variables",
			"s.py",
			"PET_SHUTDOWN_TIMEOUT=1 TORCH_ELASTIC_SHUTDOWN_TIMEOUT=2",
			"",
			Setting{"shutdown-timeout", "1", env("PET_SHUTDOWN_TIMEOUT"), false},
		},
		{
			"second of two variables",
			"s.py",
			"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=2",
			"",
			Setting{"shutdown-timeout", "2", env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"), false},
		},
		{
			"ours",
			"s.py",
			"ELASTICRUN_LOG_FORMAT=json",
			"",
			Setting{"log-format", "json", env("ELASTICRUN_LOG_FORMAT"), false},
		},
		{"no PET_ for ours", "s.py", "PET_LOG_FORMAT=json", "", Setting{"log-format", "auto", none, false}},
		{"no PET_ for numa-binding", "s.py", "PET_NUMA_BINDING=node", "", Setting{"numa-binding", "", none, false}},
		{"text in a file is not YAML's number", "s.py", "", "tee: 0:3,1:2", Setting{"tee", "0:3,1:2", file, false}},
		{"range in a file is not base 60", "s.py", "", "nnodes: 1:1", Setting{"nnodes", "1:1", file, false}},
		{"a duration in a file", "s.py", "", "shutdown-timeout: 1m30s", Setting{"shutdown-timeout", "1m30s", file, false}},
		{"decimals in a file", "s.py", "", "shutdown-timeout: 0.5", Setting{"shutdown-timeout", "0.5", file, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			setEnv(t, strings.Fields(tt.env)...)
			if tt.file != "" {
				write(t, "elasticrun.yaml", tt.file)
			}
			c, err := load(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			got := settingNamed(c, tt.want.Name)
			layer := map[SourceKind]string{FromDefault: "default", FromFlag: "flag"}[got.Source.Kind]
			if text := got.Source.String(); text != layer && text != got.Source.Name {
				t.Errorf("the source reads %q", text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfigFileChoice(t *testing.T) {
	tests := []struct {
		name  string
		line  string
		env   string
		files map[string]string // HOME stands for the user's config folder
		want  string
	}{
		{"none", "s.py", "", nil, ""},
		{
			"working directory",
			"s.py",
			"",
			map[string]string{"elasticrun.yaml": "role: a", "HOME/elasticrun/elasticrun.yaml": "role: b"},
			"a",
		},
		{"user's folder", "s.py", "", map[string]string{"HOME/elasticrun/elasticrun.yaml": "role: b"}, "b"},
		{
			"only the first is read",
			"s.py",
			"",
			map[string]string{"elasticrun.yaml": "max-restarts: 1", "HOME/elasticrun/elasticrun.yaml": "role: b"},
			"",
		},
		{
			"named",
			"--config other.yaml s.py",
			"",
			map[string]string{"elasticrun.yaml": "role: a", "other.yaml": "role: c"},
			"c",
		},
		{
			"named by the environment",
			"s.py",
			"ELASTICRUN_CONFIG=other.yaml",
			map[string]string{"elasticrun.yaml": "role: a", "other.yaml": "role: c"},
			"c",
		},
		{"any suffix is YAML", "--config other.txt s.py", "", map[string]string{"other.txt": "role: c"}, "c"},
		{"switched off", "--config /dev/null s.py", "", map[string]string{"elasticrun.yaml": "role: a"}, ""},
		{"empty file", "s.py", "", map[string]string{"elasticrun.yaml": "# nothing yet\n"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			setEnv(t, strings.Fields(tt.env)...)
			folder, err := os.UserConfigDir()
			if err != nil {
				t.Fatal(err)
			}
			for path, text := range tt.files {
				write(t, strings.Replace(path, "HOME", folder, 1), text)
			}
			c, err := load(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "default", false: tt.want}[tt.want == ""]; c.Role != want {
				t.Errorf("role %q, want %q (file %q)", c.Role, want, c.ConfigFile)
			}
		})
	}
}

// TestBadInput has the error line of each kind of bad input, which names the input as the user wrote it.
func TestBadInput(t *testing.T) {
	check := func(line, env, file, want string) {
		t.Run(line+"|"+env+"|"+file, func(t *testing.T) {
			clean(t)
			if env != "" {
				setEnv(t, env)
			}
			if file != "" {
				write(t, "elasticrun.yaml", file)
			}
			_, err := load(line)
			wantRefusal(t, line, err, want)
		})
	}
	for _, tt := range []struct {
		line string
		env  string // one variable, NAME=VALUE
		want string
	}{
		{line: "", want: "no script given: elasticrun [flags] SCRIPT [ARGS...]"},
		{line: "--standalone", want: "no script given: elasticrun [flags] SCRIPT [ARGS...]"},
		{
			line: "--bogus s.py",
			want: "--bogus: unknown flag; elasticrun --help lists them; the script's own flags go after the script",
		},
		{line: "--nnodes=4:2 s.py", want: "--nnodes=4:2: MIN must not be above MAX: did you mean 2:4?"},
		{line: "--nnodes=0 s.py", want: "--nnodes=0: must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{line: "--nnodes=a:b s.py", want: "--nnodes=a:b: must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{line: "--nnodes=1:2:3 s.py", want: "--nnodes=1:2:3: must be N or MIN:MAX, each a whole number between 1 and 1048576"},
		{line: "--nnodes=2 s.py", want: "--nnodes=2: " + typeOneOf},
		{line: "--nnodes=1:2 s.py", env: "MASTER_PORT=29500", want: "--nnodes=1:2: " + typeOneOf},
		{
			line: "--rdzv-backend=etcd --rdzv-id=a s.py", env: "PET_NNODES=2",
			want: "PET_NNODES=2: several nodes need an endpoint at which they meet: give --rdzv-endpoint=HOST[:PORT], the address of etcd",
		},
		{line: "--nnodes=2 s.py", env: "PET_RDZV_ENDPOINT=", want: "--nnodes=2: " + typeOneOf},
		{
			line: "s.py", env: "PET_RDZV_CONF=password=a b,timeout=x",
			want: "PET_RDZV_CONF=password=(hidden): timeout must be a whole number, at least 1",
		},
		{line: "s.py", env: "PET_MAX_RESTARTS=", want: `PET_MAX_RESTARTS="": must be a whole number`},
		{line: "s.py", env: "PET_MASTER_PORT=", want: `PET_MASTER_PORT="": must be a whole number`},
		{line: "s.py", env: "PET_MODULE=", want: `PET_MODULE="": must be a whole number: 1 is on, 0 is off`},
		{line: "--config gone.yaml s.py", want: "--config=gone.yaml: cannot read the config file: no such file or directory"},
		{line: "--config . s.py", want: "--config=.: cannot read the config file: is a directory"},
		{line: "--config= s.py", want: `--config="": cannot read the config file: no such file or directory`},
	} {
		check(tt.line, tt.env, "", tt.want)
	}
	for _, tt := range []struct{ env, problem string }{
		{"PET_NNODES=4:2", "MIN must not be above MAX: did you mean 2:4?"},
		{"PET_STANDALONE=true", "must be a whole number: 1 is on, 0 is off"},
		{"PET_START_METHOD=x", "must be one of spawn, fork, forkserver"},
		{"LOGLEVEL=loud", "must be one of trace, debug, info, warning, error, critical"},
		{"TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT=-1", "must not be negative"},
		{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon", "must be a number of seconds, or a duration such as 30s or 5m"},
		{"ELASTICRUN_CONFIG=gone.yaml", "cannot read the config file: no such file or directory"},
	} {
		check("s.py", tt.env, "", tt.env+": "+tt.problem)
	}
	for _, tt := range []struct{ file, problem string }{
		{"nnodes: 4:2", "nnodes: 4:2: MIN must not be above MAX: did you mean 2:4?"},
		{"nprocs-per-node: 2", "nprocs-per-node: unknown key; the nearest is nproc-per-node"},
		{"nproc_per_nod: 2", "nproc_per_nod: unknown key; the nearest is nproc-per-node"},
		{
			"NNODES: 2",
			"NNODES: unknown key; keys are the long flags without their dashes (the script is given on the command line)",
		},
		{"zzz.nnodes: 2", "zzz.nnodes: unknown key; the nearest is nnodes"},
		{
			"script: s.py",
			"script: unknown key; keys are the long flags without their dashes (the script is given on the command line)",
		},
		{
			"bogus: {}",
			"bogus: unknown key; keys are the long flags without their dashes (the script is given on the command line)",
		},
		{
			"bogus:",
			"bogus: unknown key; keys are the long flags without their dashes (the script is given on the command line)",
		},
		{"config: x", "config: belongs on the command line, not in a config file"},
		{"rdzv-conf: {join_timeout: 5}", "rdzv-conf: must be text, got a map"},
		{"nnodes: {}", "nnodes: must be text or a whole number, got a map"},
		{"nnodes: [1, 2]", "nnodes: must be text or a whole number, got a list"},
		{"nnodes:", "nnodes: must be text or a whole number, got nothing"},
		{"nnodes: 1.5", "nnodes: must be text or a whole number, got 1.5"},
		{"rdzv-id: 010", "rdzv-id: must be text, got 8: put it in quotes"},
		{"role: true", "role: must be text, got true: put it in quotes"},
		{"max-restarts: many", `max-restarts: must be a whole number, got "many"`},
		{`max-restarts: "3"`, `max-restarts: must be a whole number, got "3"`},
		{"max-restarts: 1.5", "max-restarts: must be a whole number, got 1.5"},
		{`shutdown-timeout: "0"`, `shutdown-timeout: must be a number of seconds or a duration such as 30s, got "0"`},
		{"standalone: 1", "standalone: must be true or false, got 1"},
		{"shutdown-timeout: .inf", "shutdown-timeout: +Inf: must be at most 1000000000 seconds"},
		{"max-restarts: 1\nmax_restarts: 2", "max_restarts: given in both spellings; keep one"},
		{"max_restarts: -1", "max-restarts: -1: must be between 0 and 1073741824"},
		{"- nnodes", "line 1: must be keys with values, such as nnodes: 2"},
		{
			"nnodes: [",
			"near line 1: a list or a map does not end, or a value begins with a comma or a closing bracket: put it in quotes",
		},
		{"nnodes: 1\nnnodes: 2", `line 2: "nnodes" is there twice, first in line 1: keep one`},
		{"just text", "line 1: must be keys with values, such as nnodes: 2"},
		{
			"role: a\nnnodes: 1: 2",
			"line 2: no colon may stand here: put a value that has a colon in quotes, and check that the line above has a colon and the same indentation",
		},
		{"role: a\nrdzv-id: \"\xff\"", "line 2: is not UTF-8 text"},
		{"role: \x1b[31m", "has a control character: remove it"},
	} {
		check("s.py", "", tt.file, "elasticrun.yaml: "+tt.problem)
	}
}

func TestHelpAndVersion(t *testing.T) {
	clean(t)
	if _, err := load("--nnodes 1 --help"); !errors.Is(err, ErrHelp) {
		t.Errorf("got %v, want ErrHelp", err)
	}
	if _, err := load("--version s.py"); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
}

// TestEveryFlagFromEveryLayer sets each flag by command line, variable and file, and checks the settings.
func TestEveryFlagFromEveryLayer(t *testing.T) {
	sample := map[Kind][3]string{ // flag, variable, file
		KindString:  {"--%=a", "a", "%: a"},
		KindSpec:    {"--%=1", "1", "%: 1"},
		KindInt:     {"--%=1", "1", "%: 1"},
		KindSeconds: {"--%=1", "1", "%: 1"},
		KindBool:    {"--%", "1", "%: true"},
	}
	for _, f := range Flags() {
		if f.Kind == KindAction || f.CommandLineOnly {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			clean(t)
			get := func() Setting {
				t.Helper()
				line, err := splitArgs([]string{"s.py"})
				if err != nil {
					t.Fatal(err)
				}
				return gatherOne(t, line.options, f.Name)
			}
			if got := get(); got.Given() || got.Value != map[bool]string{true: "false", false: f.Default}[f.Kind == KindBool] {
				t.Errorf("default: got %+v", got)
			}
			write(t, "elasticrun.yaml", strings.Replace(sample[f.Kind][2], "%", f.Underscored(), 1))
			if got := get(); got.Source.Kind != FromFile || got.Value == "" {
				t.Errorf("file: got %+v", got)
			}
			for _, name := range slices.Backward(f.Env) {
				t.Setenv(name, sample[f.Kind][1])
				if got := get(); got.Source != (Source{FromEnv, name}) || got.Value != sample[f.Kind][1] {
					t.Errorf("variable %s: got %+v", name, got)
				}
			}
			line, err := splitArgs([]string{strings.Replace(sample[f.Kind][0], "%", f.Underscored(), 1), "s.py"})
			if err != nil {
				t.Fatal(err)
			}
			if got := gatherOne(t, line.options, f.Name); got.Source.Kind != FromFlag || got.Value == "" {
				t.Errorf("flag: got %+v", got)
			}
		})
	}
}

func gatherOne(t *testing.T, options []string, name string) Setting {
	t.Helper()
	settings, _, err := gather(Flags(), options)
	if err != nil {
		t.Fatal(err)
	}
	return settingNamed(&Config{Settings: settings}, name)
}

func TestDefaults(t *testing.T) {
	clean(t)
	c, err := load("s.py a b")
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Script, want.ScriptArgs, want.RunID = "s.py", []string{"a", "b"}, c.RunID
	if diff := cmp.Diff(want, c, cmpopts.IgnoreFields(Config{}, "Settings"), cmp.AllowUnexported(exitcode.Map{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.RunID) != 36 || c.RunID[14] != '4' {
		t.Errorf("run id %q is not a random UUID", c.RunID)
	}
	if again, err := load("s.py"); err != nil || again.RunID == c.RunID {
		t.Errorf("second run id %v, %v: want a fresh one", again, err)
	}
}

// TestSwitchInEnvironment checks torchrun's rule, bool(int(value)).
func TestSwitchInEnvironment(t *testing.T) {
	for value, want := range map[string]bool{"0": false, "00": false, " 0 ": false, "1": true, "2": true, "-1": true} {
		clean(t)
		t.Setenv("PET_MODULE", value)
		c, err := load("s.py")
		if err != nil || c.Module != want {
			t.Errorf("PET_MODULE=%q: got %+v, %v, want module %v", value, c, err, want)
		}
	}
}

// schedulerVariables returns the variables of the environment that could indicate a scheduler.
func schedulerVariables() []string {
	var names []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		for _, prefix := range []string{"SLURM", "KUBERNETES_", "JOB_COMPLETION_", "OMPI_", "PMI", "MPI_", "MASTER_"} {
			if strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	return names
}
