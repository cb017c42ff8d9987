package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slurm asks Slurm. A step (srun) tells where each of its processes is. A batch script, or the shell of salloc, is on one
// of the allocation's nodes, or on none, and nobody has started anything on the others.
func slurm(env Lookup, _ Host) (*Facts, error) {
	v := &variables{env: env}
	if !slices.ContainsFunc([]string{"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_NODEID"}, v.set) {
		return nil, nil
	}
	f := &Facts{Name: Slurm, NodeRank: v.number(0, "SLURM_NODEID"), Attempt: v.number(0, "SLURM_RESTART_COUNT")}
	// All components of a heterogeneous job have ids of their own, but their steps tell the first one's.
	job, jobName := v.text("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID")
	f.Job = job
	if end, name := v.text("SLURM_JOB_END_TIME"); name != "" {
		if seconds, err := strconv.ParseInt(end, 10, 64); err == nil && seconds > 0 {
			f.Deadline = Value[time.Time]{time.Unix(seconds, 0), told(name, end)}
		}
	}
	step, stepName := v.text("SLURM_STEP_ID", "SLURM_STEPID")
	if !isStep(step) {
		v.allocation(f)
		return f, v.err
	}
	if job != "" {
		f.RunID, f.PortKey = stepID(f, step, told(jobName, job)+" "+told(stepName, step)), job+"."+step
	}
	v.step(f)
	return f, v.err
}

// stepID is the run id of the job that a step is, and source what says so.
func stepID(f *Facts, step, source string) Value[string] {
	id := Slurm + "-" + f.Job + "." + step
	if f.Attempt.Is > 0 {
		id += fmt.Sprintf(".r%d", f.Attempt.Is)
		source += " " + f.Attempt.Source
	}
	return Value[string]{id, source}
}

// FirstStep makes of the facts of a Slurm job what agents infer in its first step, as long as that is on all of its nodes: a batch script that
// starts nothing before has them there. Only where they meet, and the run id, are of use then.
func FirstStep(env Lookup, f Facts) Facts {
	v := &variables{env: env}
	first := v.components()[0]
	if hosts := v.hosts(first.list, first.listName); hosts != nil && f.Job != "" {
		f.Endpoint = Value[string]{hosts[0], told(first.listName, first.list)}
		f.RunID = stepID(&f, "0", "the first step of Slurm's job "+f.Job)
	}
	return f
}

// isStep tells whether a step of this id is one of srun's: a batch script, and the shell that salloc starts on a node,
// are steps of their own to Slurm, with names, or with numbers from the end of 32 bits.
func isStep(id string) bool {
	n, err := strconv.ParseUint(id, 10, 64)
	return err == nil && n < 0xfffffff0
}

// step reads what srun tells its processes.
func (v *variables) step(f *Facts) {
	f.Nodes = v.number(1, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	if f.NodeRank.Known() && f.Nodes.Known() && f.NodeRank.Is >= f.Nodes.Is {
		name, text, _ := strings.Cut(f.NodeRank.Source, "=")
		v.fail(problem(name, text, "must be below the number of nodes, %s", f.Nodes.Source))
		f.NodeRank = Value[int]{}
	}
	if all, set := v.env("SLURM_JOB_NUM_NODES"); set && f.Nodes.Is == 1 && all != "1" {
		f.Notes = append(f.Notes, fmt.Sprintf("slurm job %s has %s nodes, but this step has one: it is a job of one node", f.Job, all))
	}
	v.stepTasks(f)
	v.stepHosts(f)
}

// stepTasks finds out whether several processes were started on a node.
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
		tasks.Source = told(name, each)
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

// stepHosts finds the first of the step's nodes and which of them is this one. Where each is in the list decides, not
// SLURM_NODEID: it is the list that all nodes have alike.
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
		v.fail(problem(name, list, "lists %d nodes, but there are to be %s", len(hosts), f.Nodes.Source))
		return
	}
	hosts = v.componentOrder(hosts)
	source := told(name, list)
	f.Endpoint = Value[string]{hosts[0], source}
	if self, name := v.text("SLURMD_NODENAME"); name != "" {
		at := slices.Index(hosts, self)
		if at < 0 {
			v.fail(problem(name, self, "is not in %s", source))
			return
		}
		if !f.NodeRank.Known() || f.NodeRank.Is != at {
			f.NodeRank = Value[int]{at, told(name, self) + " " + source}
		}
	}
	if f.NodeRank.Known() {
		f.IsHost = Value[bool]{f.NodeRank.Is == 0, f.NodeRank.Source}
	}
}

// hosts expands the list of a variable; it is nil where that cannot be done, or there is no such variable.
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

// componentOrder puts the hosts of a step over several components of a heterogeneous job into the order of the
// components, in which Slurm numbers the nodes: the step's own list is sorted by name. Hosts that the components do not have, or not once
// each, stay as they are.
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

// component is a part of a job whose nodes are alike; most jobs have one only.
type component struct {
	suffix         string // of its variables
	nodes          Value[int]
	list, listName string
}

// components lists those of the job, in their order.
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
