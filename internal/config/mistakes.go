package config

import (
	"slices"
	"strings"
	"unicode"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// isDash recognizes the hyphen, and the dashes that editors and web pages put in its place.
func isDash(r rune) bool { return unicode.Is(unicode.Pd, r) || r == '−' }

// checkDashes refuses a flag with dashes that are no hyphens: "–nnodes" and "--nproc‑per‑node" look like flags. Such an
// argument would be taken for the script.
func checkDashes(arg string) error {
	name, _, _ := strings.Cut(arg, "=")
	foreign := func(r rune) bool { return isDash(r) && r != '-' }
	if !isDash([]rune(name + " ")[0]) || !strings.ContainsFunc(name, foreign) {
		return nil
	}
	bare := strings.Map(func(r rune) rune {
		if isDash(r) {
			return '-'
		}
		return r
	}, strings.TrimLeftFunc(name, isDash))
	flag := "--" + bare
	if len(bare) == 1 {
		flag = "-" + bare
	}
	return &UsageError{
		Where: printable.Quote(arg), Problem: "has a dash that is no hyphen, as web pages show it: write " + flag,
	}
}

// scriptAsValue returns an error if the last flag seems to have taken the script as its value, as in "--tee train.py".
// options are --name=value.
func scriptAsValue(flags []Flag, options []string) error {
	if len(options) == 0 {
		return nil
	}
	name, value, _ := strings.Cut(strings.TrimPrefix(options[len(options)-1], "--"), "=")
	f, _ := findFlag(flags, name)
	if !f.takesValue() || f.Effect != NoEffect || !strings.HasSuffix(value, ".py") && !strings.HasSuffix(value, ".sh") {
		return nil
	}
	return &UsageError{
		Where: "--" + name + "=" + printable.Quote(value),
		Problem: printable.Quote(value) + " is taken as the flag's value, and no script is left: write --" + name + "=" +
			f.Placeholder + " " + printable.ShellWord(value),
	}
}

// foreignFlag is a flag of other launchers that elasticrun does not have.
type foreignFlag struct {
	names  []string // without dashes at the start, in the dashed spelling
	advice string
}

// foreignFlags returns the flags of other launchers that people give out of habit, and what to give in their place.
func foreignFlags() []foreignFlag {
	return []foreignFlag{
		{ // accelerate, deepspeed, mpirun, srun, horovodrun
			[]string{
				"n", "np", "num-processes", "num-procs", "num-gpus", "num-workers", "nproc", "ngpus", "gpus", "ntasks",
				"ntasks-per-node", "gpus-per-node", "procs-per-node", "ppn",
			},
			"--nproc-per-node is the number of workers on each node, --nnodes that of nodes",
		},
		{[]string{"N", "nodes", "num-nodes", "num-machines"}, "--nnodes is the number of nodes"},
		{[]string{"machine-rank"}, "--node-rank is the rank of this node"},
		{[]string{"main-process-ip", "master-ip", "main-process-addr"}, "--master-addr is the address of node rank 0"},
		{[]string{"main-process-port"}, "--master-port is the port of the workers' store"},
		{
			[]string{"H", "host", "hosts", "hostfile", "machinefile", "include", "exclude"},
			"elasticrun has no list of hosts: run the same command on every node, with --rdzv-endpoint=HOST",
		},
		{[]string{"job-id", "run-id"}, "--rdzv-id is the run id"},
		{
			[]string{"rdzv-timeout", "rendezvous-timeout", "join-timeout", "rdzv-join-timeout", "timeout"},
			"--rdzv-conf=join_timeout=SECONDS is how long a node waits for the others",
		},
		{[]string{"python", "python-executable", "python-exec"}, "the variable PYTHON_EXEC names the interpreter"},
	}
}

// foreignAdvice returns what to give in place of another launcher's flag, or "".
func foreignAdvice(name string) string {
	for _, f := range foreignFlags() {
		if slices.Contains(f.names, name) {
			return f.advice
		}
	}
	return ""
}

// misplacedFlags are the flags that a warning names when they follow the script: names that scripts hardly have.
func misplacedFlags() []string {
	return []string{
		"nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone", "max-restarts",
		"no-python",
	}
}

// warnMisplaced warns of a flag of the launcher among the script's arguments. As with torchrun, the script gets it.
func (r *reader) warnMisplaced(args []string) {
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		long, ok := strings.CutPrefix(name, "--")
		if flag := underscoreToDash(long); ok && slices.Contains(misplacedFlags(), flag) && !r.given(flag) {
			r.warnings = append(r.warnings,
				name+" follows the script, so it is an argument of the script; flags of elasticrun go before the script")
			return
		}
	}
}
