package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// splitArgs splits the arguments of a launch.
func splitArgs(argv []string) (commandLine, error) {
	p := argParser{flags: Flags(), hint: launchHint}
	return p.split(argv)
}

// The results were compared by hand with argparse of Python 3.11, 3.12 and 3.13, with torchrun's options in both
// spellings. "differs" marks the cases in which elasticrun deliberately does something else.
func TestSplitArgs(t *testing.T) {
	words := func(s ...string) []string { return s }
	tests := []struct {
		name    string
		in      []string
		options []string
		command []string
	}{
		{"nothing", nil, nil, nil},
		{"script only", words("s.py"), nil, words("s.py")},
		{"value behind =", words("--nnodes=1", "s.py"), words("--nnodes=1"), words("s.py")},
		{"value as next argument", words("--nnodes", "1", "s.py"), words("--nnodes=1"), words("s.py")},
		{"underscores", words("--nproc_per_node", "2", "s.py"), words("--nproc-per-node=2"), words("s.py")},
		{
			"mixed spelling (differs: argparse refuses)",
			words("--nproc_per-node=2", "s.py"),
			words("--nproc-per-node=2"),
			words("s.py"),
		},
		{"underscores in the value stay", words("--role=a_b-c", "s.py"), words("--role=a_b-c"), words("s.py")},
		{"given twice", words("--nnodes=1", "--nnodes=2", "s.py"), words("--nnodes=1", "--nnodes=2"), words("s.py")},
		{"second = belongs to the value", words("--rdzv-conf=a=b", "s.py"), words("--rdzv-conf=a=b"), words("s.py")},
		{"only = as the value", words("--nnodes==", "s.py"), words("--nnodes=="), words("s.py")},
		{"empty value", words("--tee=", "s.py"), words("--tee="), words("s.py")},
		{"empty next argument", words("--log-dir", "", "s.py"), words("--log-dir="), words("s.py")},

		{"abbreviation", words("--nproc=2", "s.py"), words("--nproc-per-node=2"), words("s.py")},
		{"abbreviation, next argument", words("--nproc", "2", "s.py"), words("--nproc-per-node=2"), words("s.py")},
		{"abbreviation with underscore", words("--nproc_per=2", "s.py"), words("--nproc-per-node=2"), words("s.py")},
		{"abbreviation seen in the wild", words("--redirect=3", "s.py"), words("--redirects=3"), words("s.py")},
		{
			"two spellings are one flag (differs: argparse calls it ambiguous)",
			words("--node=1", "s.py"),
			words("--node-rank=1"),
			words("s.py"),
		},
		{"one of two filters", words("--duplicate-stdo=x", "s.py"), words("--duplicate-stdout-filters=x"), words("s.py")},
		{"ours does not make torchrun's ambiguous", words("--log-d=x", "s.py"), words("--log-dir=x"), words("s.py")},
		{"ours does not make a switch ambiguous", words("--v", "s.py"), words("--virtual-local-rank=true"), words("s.py")},
		{
			"ours spelt out",
			words("--log_format=json", "--config", "f", "s.py"),
			words("--log-format=json", "--config=f"),
			words("s.py"),
		},
		{
			"a full name that begins another",
			words("--role=x", "--tee=3", "s.py"),
			words("--role=x", "--tee=3"),
			words("s.py"),
		},

		{"short, joined", words("-r3", "s.py"), words("--redirects=3"), words("s.py")},
		{"short, apart", words("-r", "3", "s.py"), words("--redirects=3"), words("s.py")},
		{"short, =", words("-r=3", "s.py"), words("--redirects=3"), words("s.py")},
		{"short, = and nothing", words("-r=", "s.py"), words("--redirects="), words("s.py")},
		{"short, two =", words("-r==3", "s.py"), words("--redirects==3"), words("s.py")},
		{"short map", words("-t", "0:3,1:2", "s.py"), words("--tee=0:3,1:2"), words("s.py")},
		{"short switch", words("-m", "pkg.train", "-m"), words("--module=true"), words("pkg.train", "-m")},
		{"cluster", words("-mr3", "s.py"), words("--module=true", "--redirects=3"), words("s.py")},
		{"cluster, apart", words("-mr", "3", "s.py"), words("--module=true", "--redirects=3"), words("s.py")},
		{"cluster, = as Python 3.13", words("-mr=3", "s.py"), words("--module=true", "--redirects=3"), words("s.py")},
		{"cluster of one switch twice", words("-mm", "s.py"), words("--module=true", "--module=true"), words("s.py")},
		{"cluster ends at the first value", words("-rt3", "s.py"), words("--redirects=t3"), words("s.py")},
		{"cluster, letter as value", words("-mrt", "s.py"), words("--module=true", "--redirects=t"), words("s.py")},
		{"short with a blank", words("-r3 4", "s.py"), words("--redirects=3 4"), words("s.py")},

		{"negative number is a value", words("--node-rank", "-1", "s.py"), words("--node-rank=-1"), words("s.py")},
		{"negative number behind =", words("--node-rank=-1", "s.py"), words("--node-rank=-1"), words("s.py")},
		{"negative decimal", words("--log-dir", "-1.5", "s.py"), words("--log-dir=-1.5"), words("s.py")},
		{"negative decimal, no digit in front", words("--log-dir", "-.5", "s.py"), words("--log-dir=-.5"), words("s.py")},
		{"negative number behind a short", words("-r", "-3", "s.py"), words("--redirects=-3"), words("s.py")},
		{"negative number joined to a short", words("-r-3", "s.py"), words("--redirects=-3"), words("s.py")},
		{"dashed value behind =", words("--log-dir=-x", "s.py"), words("--log-dir=-x"), words("s.py")},
		{"lone dash is a value", words("--log-dir", "-", "s.py"), words("--log-dir=-"), words("s.py")},
		{"a blank makes a value", words("--log-dir", "-a b", "s.py"), words("--log-dir=-a b"), words("s.py")},
		{
			"a blank makes a value of a flag's name",
			words("--log-dir", "--nnodes x", "s.py"),
			words("--log-dir=--nnodes x"),
			words("s.py"),
		},
		{"a blank behind = does not", words("--log-dir=a b", "s.py"), words("--log-dir=a b"), words("s.py")},

		{
			"script's flags",
			words("s.py", "--nnodes", "3", "-m", "-h", "--version"),
			nil,
			words("s.py", "--nnodes", "3", "-m", "-h", "--version"),
		},
		{"script's flags, ambiguous (differs: argparse refuses)", words("s.py", "--n", "3"), nil, words("s.py", "--n", "3")},
		{"-- behind the script (differs: argparse drops it)", words("s.py", "--", "a"), nil, words("s.py", "--", "a")},
		{"-- further on", words("s.py", "a", "--", "b", "--"), nil, words("s.py", "a", "--", "b", "--")},
		{"empty arguments", words("s.py", "", "x", ""), nil, words("s.py", "", "x", "")},
		{"empty script", words("", "x"), nil, words("", "x")},
		{
			"-- ends the options",
			words("--standalone", "--", "s.py", "--nnodes", "2"),
			words("--standalone=true"),
			words("s.py", "--nnodes", "2"),
		},
		{"-- and a script like a flag", words("--", "-m", "s.py"), nil, words("-m", "s.py")},
		{"-- twice", words("--", "--", "x"), nil, words("--", "x")},
		{"-- and no script", words("--standalone", "--"), words("--standalone=true"), words()},
		{"script is a lone dash", words("-m", "-", "x"), words("--module=true"), words("-", "x")},
		{"script is a negative number", words("-1", "x"), nil, words("-1", "x")},
		{"script with a blank", words("-a b", "x"), nil, words("-a b", "x")},
		{"switch takes no next argument", words("--standalone", "1"), words("--standalone=true"), words("1")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := splitArgs(tt.in)
			if err != nil {
				t.Fatalf("splitArgs(%q): %v", tt.in, err)
			}
			if diff := cmp.Diff(commandLine{tt.options, tt.command}, got, cmp.AllowUnexported(commandLine{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("splitArgs(%q) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestSplitArgsRefuses(t *testing.T) {
	tests := []struct {
		in   string // separated by blanks
		want string
	}{
		{"--rdzv=1 s.py", "--rdzv: ambiguous: it could be --rdzv-backend, --rdzv-endpoint, --rdzv-id, --rdzv-conf"},
		{"--log=1 s.py", "--log: ambiguous: it could be --log-dir, --log-line-prefix-template, --logs-specs"},
		{"--no s.py", "--no: ambiguous: it could be --node-rank, --no-python"},
		{"--mo s.py", "--mo: ambiguous: it could be --module, --monitor-interval"},
		{"--d=x s.py", "--d: ambiguous: it could be --duplicate-stdout-filters, --duplicate-stderr-filters"},
		{"--log-lev=info s.py", "--log-lev: unknown flag; --log-level must be written in full"},
		{"--exit_code=1 s.py", "--exit_code: unknown flag; --exit-code-map must be written in full"},
		{"--vers", "--vers: unknown flag; --version must be written in full"},
		{"--nodes=2 s.py", "--nodes: unknown flag; --nnodes is the number of nodes"},
		{"--nproc-per-nodes=2 s.py", "--nproc-per-nodes: unknown flag; the nearest is --nproc-per-node"},
		{"--max_restart_count 2 s.py", "--max_restart_count: unknown flag; the nearest is --max-restarts"},
		{
			"--NNODES 2 s.py",
			"--NNODES: unknown flag; elasticrun --help lists them; the script's own flags go after the script",
		},
		{"-nnodes 2 s.py", "-nnodes: unknown flag; the nearest is --nnodes"},
		{"--lr 0.1 s.py", "--lr: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
		{"--=x s.py", "--: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
		{"--- s.py", "---: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
		{"-x s.py", "-x: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
		{"-=3 s.py", "-=3: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
		{"-mx s.py", "-mx: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
		{"-module s.py", "-module: unknown flag; the nearest is --module"},
		{"--nnodes", "--nnodes: needs a value: --nnodes=N|MIN:MAX"},
		{"-mr", "--redirects: needs a value: --redirects=STREAMS"},
		{
			"--node-rank -x s.py",
			`--node-rank: needs a value: --node-rank=N ("-x" starts with a dash, so it is a value only after =)`,
		},
		{
			"--log-dir -1e3 s.py",
			`--log-dir: needs a value: --log-dir=DIR ("-1e3" starts with a dash, so it is a value only after =)`,
		},
		{
			"--log-dir -1_0 s.py",
			`--log-dir: needs a value: --log-dir=DIR ("-1_0" starts with a dash, so it is a value only after =)`,
		},
		{
			"--log-dir -- x s.py",
			`--log-dir: needs a value: --log-dir=DIR ("--" starts with a dash, so it is a value only after =)`,
		},
		{
			"-r -t s.py",
			`--redirects: needs a value: --redirects=STREAMS ("-t" starts with a dash, so it is a value only after =)`,
		},
		{
			"--nnodes --help",
			`--nnodes: needs a value: --nnodes=N|MIN:MAX ("--help" starts with a dash, so it is a value only after =)`,
		},
		{
			"--standalone=1 s.py",
			`--standalone: takes no value, but got "1"; to switch it off against a config file, set PET_STANDALONE=0`,
		},
		{
			"--standalone=false s.py",
			`--standalone: takes no value, but got "false"; to switch it off against a config file, set PET_STANDALONE=0`,
		},
		{"-m= s.py", `--module: takes no value, but got ""; to switch it off against a config file, set PET_MODULE=0`},
		{"-m=r3 s.py", `--module: takes no value, but got "r3"; to switch it off against a config file, set PET_MODULE=0`},
		{"--help=x", `--help: takes no value, but got "x"`},
		{"--bogus --help", "--bogus: unknown flag; elasticrun --help lists them; the script's own flags go after the script"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			_, err := splitArgs(strings.Fields(tt.in))
			wantRefusal(t, tt.in, err, tt.want)
		})
	}
}

func TestSplitArgsHelp(t *testing.T) {
	tests := []struct {
		in   string
		want error
	}{
		{"--help", ErrHelp},
		{"-h", ErrHelp},
		{"--he", ErrHelp},
		{"--h s.py", ErrHelp},
		{"-mh s.py", ErrHelp},
		{"--nnodes 1 -h", ErrHelp},
		{"--help --bogus", ErrHelp},
		{"--version", ErrVersion},
		{"--version --help", ErrVersion},
		{"s.py --help", nil},
		{"s.py --version", nil},
		{"-- --help", nil},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			if _, err := splitArgs(strings.Fields(tt.in)); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// FuzzSplitArgs checks that the arguments after the script are unchanged, and that pflag reads the canonical options
// with the same values.
func FuzzSplitArgs(f *testing.F) {
	for _, seed := range []string{
		"", "s.py", "--nproc=2\ns.py\n--nproc=3", "-mr3\n--\n--\n", "--log-dir\n-a b\n\n-", "-r\n-1\n-1\nx", "--\xff=\n-\xff",
		"--standalone\n--=\n", "-h", "--role\n--\ns.py", "-t=0:3\n--tee\n3\ns.py\n--tee",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		argv := strings.Split(joined, "\n")
		got, err := splitArgs(argv)
		if err != nil {
			if _, usage := errors.AsType[*UsageError](err); !usage && !errors.Is(err, ErrHelp) && !errors.Is(err, ErrVersion) {
				t.Fatalf("unexpected error %v (%T)", err, err)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("error of several lines: %q", err)
			}
			return
		}
		head := argv[:len(argv)-len(got.command)]
		if !slices.Equal(got.command, argv[len(head):]) {
			t.Fatalf("command %q is not the end of %q", got.command, argv)
		}
		set := flagSet(Flags())
		if err := set.Parse(got.options); err != nil || set.NArg() > 0 {
			t.Fatalf("pflag does not read %q: %v, rest %q", got.options, err, set.Args())
		}
		again, err := splitArgs(append(withoutSwitchValues(got.options), append([]string{"--"}, got.command...)...))
		if err != nil {
			t.Fatalf("own output is refused: %v", err)
		}
		if !slices.Equal(again.options, got.options) || !slices.Equal(again.command, got.command) {
			t.Fatalf("not stable: %q, then %q", got, again)
		}
	})
}

// withoutSwitchValues removes the =true of canonical switches.
func withoutSwitchValues(options []string) []string {
	out := make([]string, len(options))
	for i, o := range options {
		name, _, _ := strings.Cut(o, "=")
		f, _ := findFlag(Flags(), strings.TrimPrefix(name, "--"))
		out[i] = o
		if f.Kind == KindBool {
			out[i] = name
		}
	}
	return out
}
