package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// allocation reads the variables of a batch script or the shell of salloc: the nodes of the job, but nothing about
// processes on them.
func (v *variables) allocation(f *Facts) {
	components := v.components()
	for i, c := range components {
		if !c.nodes.Known() {
			f.Nodes = Value[int]{}
			return
		}
		if f.Nodes.Is += c.nodes.Is; i > 0 {
			f.Nodes.Source += " "
		}
		f.Nodes.Source += c.nodes.Source
	}
	first := components[0]
	if f.Nodes.Is == 1 {
		if f.NodeRank = (Value[int]{}); first.list != "" && !v.set("SLURMD_NODENAME") {
			f.Notes = append(
				f.Notes,
				fmt.Sprintf(
					"slurm job %s has the node %s, which may not be this machine: srun --ntasks=1 elasticrun ... starts there",
					f.Job,
					first.list,
				),
			)
		}
		return
	}
	if f.Job != "" {
		f.RunID = Value[string]{Slurm + "-" + f.Job, "the job " + f.Job}
	}
	if hosts := v.hosts(first.list, first.listName); hosts != nil {
		f.Endpoint = Value[string]{hosts[0], assignment(first.listName, first.list)}
		f.MoreHosts = moreHosts(hosts)
	}
	for i, c := range components {
		options := v.launch(f, c)
		if len(components) > 1 {
			options = append([]string{"--het-group=" + strconv.Itoa(i)}, options...)
		}
		f.Launch = append(f.Launch, options)
	}
}

// launch returns the options with which srun starts one agent on each node of a component. The step continues when an
// agent or a node fails, because the agents decide what to do. Each agent has all CPUs of the job on its node,
// without binding.
//
// Without --cpus-per-task a step has all CPUs of a node, even if it starts few tasks. But srun also reads that number
// from the environment, where it is meant for the tasks of the batch script. The same holds for GPUs per task. In these
// cases launch asks for the CPUs or GPUs of the whole node.
func (v *variables) launch(f *Facts, c component) []string {
	n := strconv.Itoa(c.nodes.Is)
	options := []string{
		"--nodes=" + n, "--ntasks=" + n, "--ntasks-per-node=1",
		"--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--cpu-bind=none",
	}
	if text, name := v.text("SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_TASK"+c.suffix, "SLURM_CPUS_PER_TASK"); name != "" {
		cpus, _ := v.text("SLURM_JOB_CPUS_PER_NODE" + c.suffix)
		if each, ok := uniform(cpus); ok {
			options = append(options, "--cpus-per-task="+strconv.Itoa(each))
		} else {
			f.Notes = append(f.Notes, assignment(name, text)+": an agent may get only this number of its node's CPUs, "+
				"because the nodes have different numbers of CPUs")
		}
	}
	if text, name := v.text("SLURM_GPUS_PER_TASK"+c.suffix, "SLURM_GPUS_PER_TASK"); name != "" {
		tasks, _ := v.text("SLURM_TASKS_PER_NODE" + c.suffix)
		each, ok := uniform(tasks)
		kind, count := "", text
		if at := strings.LastIndexByte(text, ':'); at >= 0 {
			kind, count = text[:at+1], text[at+1:]
		}
		if gpus, err := strconv.Atoi(count); ok && err == nil && gpus > 0 {
			options = append(options, fmt.Sprintf("--gpus-per-node=%s%d", kind, gpus*each))
		} else {
			f.Notes = append(f.Notes, assignment(name, text)+": an agent may get only this number of its node's GPUs; use "+
				"--gpus-per-node instead")
		}
	}
	return options
}

// LaunchCommand returns the command that starts a program, with its arguments, on each node, or nil if launch is
// empty. See [Facts] for launch.
func LaunchCommand(launch [][]string, program []string) []string {
	if len(launch) == 0 {
		return nil
	}
	if slices.Contains(program, ":") { // srun takes a lone colon as the start of the next component
		program = []string{"/bin/sh", "-c", "exec " + shellWords(program)}
	}
	command := []string{"srun"}
	for i, options := range launch {
		if i > 0 {
			command = append(command, ":")
		}
		command = append(append(command, options...), program...)
	}
	return command
}

// LaunchEnvironment returns env, the environment of an srun, changed so that the tasks get those of the variables in
// names that env sets. By default tasks get all variables. But a variable for srun --export, which for example sbatch
// --export=NONE sets for the batch script, may leave some out. No value gets onto a command line.
func LaunchEnvironment(env []string, names ...string) []string {
	isSet := func(name string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	var passed []string
	for _, name := range names {
		if isSet(name) {
			passed = append(passed, name)
		}
	}
	out := slices.Clone(env)
	for i, kv := range out {
		switch name, exported, _ := strings.Cut(kv, "="); {
		case len(passed) == 0:
		case name == "SLURM_EXPORT_ENV", name == "SRUN_EXPORT_ENV": // the second overrides the first
			out[i] = name + "=" + exporting(exported, passed)
		}
	}
	return out
}

// exporting adds names to a value of srun --export. Tasks get Slurm's own variables whatever the value is. NONE and NIL
// differ from a list of names only in that srun ignores what follows them.
func exporting(value string, names []string) string {
	items := strings.Split(value, ",")
	isAll := func(item string) bool { return strings.EqualFold(item, "ALL") }
	switch first := items[0]; {
	case first == "", strings.EqualFold(first, "NONE"), strings.EqualFold(first, "NIL"):
		return strings.Join(names, ",")
	case slices.ContainsFunc(items, isAll):
		return value
	}
	return strings.Join(append(items, names...), ",")
}

// shellWords quotes words for a shell.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// counted is a number that applies to several consecutive nodes.
type counted struct{ value, times int }

// parseCounts reads Slurm's notation for one number per node: 8(x2),4.
func parseCounts(s string) ([]counted, error) {
	var counts []counted
	total := 0
	for part := range strings.SplitSeq(s, ",") {
		number, times, repeated := strings.Cut(part, "(x")
		c := counted{times: 1}
		var err error
		if repeated {
			inner, closed := strings.CutSuffix(times, ")")
			if c.times, err = strconv.Atoi(inner); err != nil || !closed {
				c.times = 0
			}
		}
		c.value, err = strconv.Atoi(number)
		if err != nil || c.value < 1 || c.value > maxNumber || c.times < 1 || c.times > maxNumber-total {
			return nil, fmt.Errorf("%q must be a number, or N(xTIMES)", part)
		}
		total += c.times
		counts = append(counts, c)
	}
	return counts, nil
}

// uniform returns the number in Slurm's notation s if it is the same for all nodes, else false.
func uniform(s string) (int, bool) {
	counts, err := parseCounts(s)
	if err != nil {
		return 0, false
	}
	for _, c := range counts {
		if c.value != counts[0].value {
			return 0, false
		}
	}
	return counts[0].value, true
}
