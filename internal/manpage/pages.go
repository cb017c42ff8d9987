package manpage

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
)

// Options say which program the pages are of.
type Options struct {
	// Version is the program's.
	Version string
	// Date is the pages'.
	Date time.Time
	// ExitCodes is docs/exit-codes.md.
	ExitCodes string
}

// Pages returns the manual pages by the names of their files: elasticrun.1, and one for each command that has flags. It
// fails where the tables of exit codes cannot be read.
func Pages(o Options) (map[string]string, error) {
	names := []string{"elasticrun"}
	for _, s := range config.Subcommands() {
		if len(s.Flags) > 0 {
			names = append(names, "elasticrun-"+s.Name)
		}
	}
	launch, err := launchPage(o, names[1:])
	if err != nil {
		return nil, err
	}
	pages := map[string]string{"elasticrun.1": launch}
	for _, s := range config.Subcommands() {
		if len(s.Flags) == 0 {
			continue
		}
		if pages["elasticrun-"+s.Name+".1"], err = commandPage(o, s); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

func (o Options) begin(name, short string) *page {
	p := newPage(name, o.Date.UTC().Format(time.DateOnly), o.Version)
	p.section("NAME")
	fmt.Fprintf(p, "%s \\- %s\n", escape(name), escape(short))
	p.section("SYNOPSIS")
	return p
}

func launchPage(o Options, others []string) (string, error) {
	p := o.begin("elasticrun", "start, watch and restart the workers of a distributed training job")
	fmt.Fprintf(p, "%s [%s] %s [%s...]\n", bold("elasticrun"), italic("flags"), italic("SCRIPT"), italic("ARGS"))
	for _, s := range config.Subcommands() {
		p.WriteString(".br\n" + synopsis(s) + "\n")
	}
	p.section("DESCRIPTION")
	p.text("`elasticrun` starts the workers of a training job, watches them, restarts all of them when one fails, and reports what went wrong. " +
		"It takes the command line of torchrun and gives workers the environment of torchrun. " +
		"The same command, typed on each of several nodes, runs one job over all of them, which goes on when nodes come, go and die.")
	p.text("The first argument that is no flag is the script; what follows it is passed on untouched. " +
		"A command is one only as the first argument: `./store` is a script.")
	p.text("Names of flags may be spelt with dashes or underscores, and those of torchrun may be cut short. " +
		"A flag beats the environment, which beats the config file, which beats what a scheduler tells, which beats the default.")
	p.section("OPTIONS")
	p.flags(config.Flags(), true)
	p.section("ENVIRONMENT")
	p.text("Flags are set by these variables too:")
	for _, f := range config.Flags() {
		for _, name := range f.Env {
			p.entry(bold(name), "`--"+f.Name+"`")
		}
	}
	p.text("Besides, these are read:")
	for _, v := range variables() {
		p.entry(bold(v.name), v.meaning)
	}
	p.section("FILES")
	p.entry(bold("elasticrun.yaml"), "The config file, in the working directory, or below `elasticrun/` in the config folder of the user. "+
		"It is a flat map from names of flags, without dashes in front, to values.")
	codes, err := exitCodes(o.ExitCodes, "")
	if err != nil {
		return "", err
	}
	p.exitStatus(codes)
	p.text("Unless the job succeeded, the last line on stderr is for machines: `exit_code=`, `reason=` and what else is known.")
	p.section("EXAMPLES")
	p.block("elasticrun --nproc-per-node 4 --max-restarts 1 train.py --lr 0.1\n" +
		"elasticrun --nnodes 2:4 --rdzv-endpoint node0 --rdzv-id job7 --nproc-per-node gpu train.py\n")
	p.references(others)
	return p.String(), nil
}

// variables are those that no flag has.
func variables() []struct{ name, meaning string } {
	return []struct{ name, meaning string }{
		{config.SecretEnv, "The secret that `--rdzv-secret-file` names a file of."},
		{"PYTHON_EXEC", "The interpreter that runs the script."},
		{"VIRTUAL_ENV", "The virtual environment whose interpreter runs the script, unless PYTHON_EXEC is set or elasticrun is installed in one itself."},
		{"CUDA_VISIBLE_DEVICES", "Which GPUs count for `--nproc-per-node`, and are given out by `--virtual-local-rank`."},
		{"OMP_NUM_THREADS", "Is set to 1 for workers where it is not set and a node has several of them."},
		{"ELASTICRUN_GPU_COUNT", "The number of GPUs that a worker sees. It is set for workers where it is not set, unless only nvidia-smi could tell."},
		{"TORCHELASTIC_ERROR_FILE", "Where the launcher itself writes the root cause of a failure, as torchrun does."},
		{"TMPDIR", "Where the temporary folders of jobs without `--log-dir` are."},
	}
}

func commandPage(o Options, s config.Subcommand) (string, error) {
	p := o.begin("elasticrun-"+s.Name, s.Short)
	p.WriteString(synopsis(s) + "\n")
	p.section("DESCRIPTION")
	for paragraph := range strings.SplitSeq(s.Intro+"\n"+s.Outro, "\n\n") {
		p.text(paragraph)
	}
	p.section("OPTIONS")
	p.flags(s.Flags, false)
	if strings.Contains(o.ExitCodes, "\n## elasticrun "+s.Name+"\n") {
		codes, err := exitCodes(o.ExitCodes, "elasticrun "+s.Name)
		if err != nil {
			return "", err
		}
		p.exitStatus(codes)
	}
	p.references([]string{"elasticrun"})
	return p.String(), nil
}

func synopsis(s config.Subcommand) string {
	line := bold("elasticrun " + s.Name)
	if s.Args != "" {
		line += " " + escape(s.Args)
	}
	return line
}

// flags writes a table of flags, with or without the headings of their groups.
func (p *page) flags(flags []config.Flag, grouped bool) {
	group := ""
	for _, f := range flags {
		if grouped && f.Group != group {
			group = f.Group
			p.macro("SS", group)
		}
		term := bold("--" + f.Name)
		if f.Short != "" {
			term = bold("-"+f.Short) + ", " + term
		}
		if f.Placeholder != "" {
			term += " " + italic(f.Placeholder)
		}
		help := f.Help
		if f.Default != "" {
			help += " Default: " + f.Default + "."
		}
		p.entry(term, help)
	}
}
