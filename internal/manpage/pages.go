package manpage

import (
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
)

// Options describe the program.
type Options struct {
	// Version is the version of the program.
	Version string
	// Date is the date in the pages' footers.
	Date time.Time
	// ExitCodes is the text of docs/exit-codes.md.
	ExitCodes string
}

// Pages returns the manual pages by file name: elasticrun.1, and one page for each command with flags. It fails if it
// cannot read the tables of exit codes.
func Pages(o Options) (map[string]string, error) {
	names := []string{"elasticrun"}
	for _, s := range config.Subcommands() {
		if len(s.Flags()) > 0 {
			names = append(names, "elasticrun-"+s.Name)
		}
	}
	launch, err := launchPage(o, names[1:])
	if err != nil {
		return nil, err
	}
	pages := map[string]string{"elasticrun.1": launch}
	for _, s := range config.Subcommands() {
		if len(s.Flags()) == 0 {
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
	p.text(
		"`elasticrun` starts the workers of a training job, watches them, restarts all of them when one fails, " +
			"and reports the root cause. " +
			"It has the command line of torchrun and gives workers the environment of torchrun. " +
			"The same command on each of several nodes runs one job on all of them, which continues when nodes join, leave " +
			"and fail.",
	)
	p.text("The first argument that is no flag is the script; the arguments after it are passed to it unchanged. " +
		"A name is a command only as the first argument: `./store` is a script.")
	p.text("Names of flags may have dashes or underscores, and flags of torchrun may be abbreviated. " +
		"A flag overrides the environment, which overrides the config file, which overrides the scheduler's value, which " +
		"overrides the default.")
	p.section("OPTIONS")
	p.flags(config.Flags(), true)
	p.section("ENVIRONMENT")
	p.text("These variables set flags:")
	for _, f := range config.Flags() {
		for _, name := range f.Env {
			p.entry(bold(name), "`--"+f.Name+"`")
		}
	}
	p.text("elasticrun also reads these variables:")
	for _, v := range variables() {
		p.entry(bold(v.name), v.meaning)
	}
	p.section("FILES")
	p.entry(
		bold("elasticrun.yaml"),
		"The config file, in the working directory or in `elasticrun/` in the user's config folder. "+
			"It is a flat map from names of flags, without leading dashes, to values.",
	)
	codes, err := exitCodes(o.ExitCodes, "")
	if err != nil {
		return "", err
	}
	p.exitStatus(codes)
	p.text(
		"Unless the job succeeded, the last line on stderr is machine-readable: `exit_code=`, `reason=` and more fields.",
	)
	p.section("EXAMPLES")
	p.block("elasticrun --nproc-per-node 4 --max-restarts 1 train.py --lr 0.1\n" +
		"elasticrun --nnodes 2:4 --rdzv-endpoint node0 --rdzv-id job7 --nproc-per-node gpu train.py\n")
	p.references(others)
	return p.String(), nil
}

// variables returns the environment variables that elasticrun reads or sets and that set no flag.
func variables() []struct{ name, meaning string } {
	return []struct{ name, meaning string }{
		{config.SecretEnv, "The secret itself, instead of `--rdzv-secret-file`."},
		{"PYTHON_EXEC", "The interpreter that runs the script."},
		{
			"VIRTUAL_ENV",
			"The virtual environment whose interpreter runs the script, unless PYTHON_EXEC is set or elasticrun itself is " +
				"installed in a virtual environment.",
		},
		{"CUDA_VISIBLE_DEVICES", "The GPUs that `--nproc-per-node` counts and `--virtual-local-rank` distributes."},
		{"HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES", "The same for GPUs of AMD."},
		{"ZE_AFFINITY_MASK, ONEAPI_DEVICE_SELECTOR, ZE_FLAT_DEVICE_HIERARCHY", "The same for GPUs of Intel."},
		{"OMP_NUM_THREADS", "Set to 1 for workers if it is not set and a node has several workers."},
		{
			"ELASTICRUN_GPU_COUNT",
			"The number of GPUs that a worker sees. Set for workers if it is not set, unless only nvidia-smi knows the number.",
		},
		{
			"ELASTICRUN_HEARTBEAT_FILE",
			"Set for workers: a file that a worker may touch to show that it makes progress, or into which it writes its step.",
		},
		{"TORCHELASTIC_ERROR_FILE", "The file to which the launcher writes the root cause of a failure, as torchrun does."},
		{"TMPDIR", "The folder for the temporary log folders of jobs without `--log-dir`."},
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
	p.flags(s.Flags(), false)
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

// flags writes a table of flags; grouped adds the headings of their groups.
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
		if f.Default != "" && !strings.Contains(help, "Default: ") {
			help += " Default: " + f.Default + "."
		}
		p.entry(term, help)
	}
}
