package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
)

// slurm reads the facts of a Slurm job. In a step (srun) every process knows its node. A batch script, or the shell of
// salloc, runs on one node of the allocation or on none, and nothing has been started on the other nodes.
func slurm(env Lookup, _ Host) (*Facts, error) {
	v := &variables{env: env}
	if !slices.ContainsFunc([]string{"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_NODEID"}, v.set) {
		return nil, nil
	}
	f := &Facts{Name: Slurm, NodeRank: v.number(0, "SLURM_NODEID"), Attempt: v.number(0, "SLURM_RESTART_COUNT")}
	// Every component of a heterogeneous job has its own id, but all steps have the id of the first component.
	job, jobName := v.text("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID")
	f.Job = job
	if end, name := v.text("SLURM_JOB_END_TIME"); name != "" {
		if seconds, err := strconv.ParseInt(end, 10, 64); err == nil && seconds > 0 {
			f.Deadline = Value[time.Time]{time.Unix(seconds, 0), assignment(name, end)}
		}
	}
	step, stepName := v.text("SLURM_STEP_ID", "SLURM_STEPID")
	if !isStep(step) {
		v.allocation(f)
		return f, v.err
	}
	if job != "" {
		f.RunID, f.PortKey = stepID(f, step, assignment(jobName, job)+" "+assignment(stepName, step)), job+"."+step
	}
	v.step(f)
	return f, v.err
}

// stepID returns the run id of a step. source is its evidence.
func stepID(f *Facts, step, source string) Value[string] {
	id := Slurm + "-" + f.Job + "." + step
	if f.Attempt.Is > 0 {
		id += fmt.Sprintf(".r%d", f.Attempt.Is)
		source += " " + f.Attempt.Source
	}
	return Value[string]{id, source}
}

// FirstStep replaces the endpoint and the run id in the facts of a Slurm job by those that agents infer in the job's
// first step. The step must be on all nodes of the job, as that of a batch script is. The other facts are not valid
// for the step.
func FirstStep(env Lookup, f Facts) Facts {
	v := &variables{env: env}
	first := v.components()[0]
	if hosts := v.hosts(first.list, first.listName); hosts != nil && f.Job != "" {
		f.Endpoint = Value[string]{hosts[0], assignment(first.listName, first.list)}
		f.MoreHosts = moreHosts(hosts)
		f.RunID = stepID(&f, "0", "the first step of Slurm's job "+f.Job)
	}
	return f
}

// isStep reports whether a step id belongs to srun. To Slurm a batch script, and the shell that salloc starts on a
// node, are steps too, with names or with numbers near the end of 32 bits.
func isStep(id string) bool {
	n, err := strconv.ParseUint(id, 10, 64)
	return err == nil && n < 0xfffffff0
}

// step reads the variables that srun sets.
func (v *variables) step(f *Facts) {
	f.Nodes = v.number(1, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	if f.NodeRank.Known() && f.Nodes.Known() && f.NodeRank.Is >= f.Nodes.Is {
		name, text, _ := strings.Cut(f.NodeRank.Source, "=")
		v.fail(problem(name, text, "must be below the number of nodes, %s", f.Nodes.Source))
		f.NodeRank = Value[int]{}
	}
	if all, set := v.env("SLURM_JOB_NUM_NODES"); set && f.Nodes.Is == 1 && all != "1" {
		f.Notes = append(
			f.Notes,
			fmt.Sprintf("slurm job %s has %s nodes, but this step has one: it is a job of one node", f.Job, all),
		)
	}
	v.stepTasks(f)
	v.stepHosts(f)
}

// stepTasks detects several processes on one node.
func (v *variables) stepTasks(f *Facts) {
	tasks := v.number(1, "SLURM_STEP_NUM_TASKS")
	each, name := v.text("SLURM_STEP_TASKS_PER_NODE")
	if counts, err := parseCounts(each); !tasks.Known() && name != "" {
		if err != nil {
			v.fail(problem(name, each, "%v", err))
			return
		}
		for _, c := range counts {
			tasks.Is += c.value * c.times
		}
		tasks.Source = assignment(name, each)
	}
	if !f.Nodes.Known() || tasks.Is <= f.Nodes.Is {
		return
	}
	if f.Tasks, f.TaskRank = tasks, v.number(0, "SLURM_PROCID"); f.TaskRank.Known() && f.TaskRank.Is >= tasks.Is {
		name, text, _ := strings.Cut(f.TaskRank.Source, "=")
		v.fail(problem(name, text, "must be below the number of tasks, %s", tasks.Source))
		f.TaskRank = Value[int]{}
	}
	f.OneEach = "srun --ntasks-per-node=1 elasticrun ..."
}

// stepHosts finds the first node of the step and the position of this node. The position in the list overrides
// SLURM_NODEID, because the list is the same on all nodes.
func (v *variables) stepHosts(f *Facts) {
	list, name := v.text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	if name == "" || !f.Nodes.Known() {
		return
	}
	hosts := v.hosts(list, name)
	if hosts == nil {
		return
	}
	if len(hosts) != f.Nodes.Is {
		v.fail(problem(name, list, "lists %s, but the step has %s", plural.Of(len(hosts), "node"), f.Nodes.Source))
		return
	}
	hosts = v.componentOrder(hosts)
	source := assignment(name, list)
	f.Endpoint, f.MoreHosts = Value[string]{hosts[0], source}, moreHosts(hosts)
	if self, name := v.text("SLURMD_NODENAME"); name != "" {
		at := slices.Index(hosts, self)
		if at < 0 {
			v.fail(problem(name, self, "is not in %s", source))
			return
		}
		if !f.NodeRank.Known() || f.NodeRank.Is != at {
			f.NodeRank = Value[int]{at, assignment(name, self) + " " + source}
		}
	}
	if f.NodeRank.Known() {
		f.IsHost = Value[bool]{f.NodeRank.Is == 0, f.NodeRank.Source}
	}
}

// hosts expands the host list of the variable name. It returns nil if name is empty, or if the list is invalid.
func (v *variables) hosts(list, name string) []string {
	if name == "" {
		return nil
	}
	hosts, err := Expand(list)
	if err != nil {
		v.fail(problem(name, list, "%v", err))
	}
	return hosts
}

// componentOrder sorts the hosts of a step by the components of a heterogeneous job, because Slurm numbers the nodes
// in this order, but sorts the step's list by name. If the components do not have each host exactly once, the order
// stays.
func (v *variables) componentOrder(hosts []string) []string {
	components := v.components()
	if len(components) < 2 {
		return hosts
	}
	in := make(map[string]bool, len(hosts))
	for _, h := range hosts {
		in[h] = true
	}
	var ordered []string
	for _, c := range components {
		for _, h := range v.hosts(c.list, c.listName) {
			if in[h] {
				ordered = append(ordered, h)
				delete(in, h)
			}
		}
	}
	if len(ordered) != len(hosts) {
		return hosts
	}
	return ordered
}

// component is a part of a heterogeneous job. Any other job has one component.
type component struct {
	suffix         string // of its variables
	nodes          Value[int]
	list, listName string
}

// components returns the components of the job in their order.
func (v *variables) components() []component {
	size := v.number(1, "SLURM_HET_SIZE")
	if size.Is < 2 {
		c := component{nodes: v.number(1, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")}
		c.list, c.listName = v.text("SLURM_JOB_NODELIST", "SLURM_NODELIST")
		return []component{c}
	}
	var all []component
	for i := range size.Is {
		c := component{suffix: "_HET_GROUP_" + strconv.Itoa(i)}
		c.nodes = v.number(1, "SLURM_JOB_NUM_NODES"+c.suffix)
		c.list, c.listName = v.text("SLURM_JOB_NODELIST" + c.suffix)
		all = append(all, c)
	}
	return all
}
