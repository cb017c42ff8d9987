package preview

import "github.com/elasticrun/elasticrun/pkg/report"

// Schema is the version of the JSON form. It changes when a field goes or changes its meaning, not when one is added.
const Schema = 1

// Plan is what a launch on this node would do.
type Plan struct {
	Schema  int    `json:"schema"`
	Version string `json:"elasticrun_version"`
	Host    string `json:"host"`
	// ConfigFile is the absolute path of the config file that was read; empty for none.
	ConfigFile string    `json:"config_file,omitempty"`
	Settings   []Setting `json:"settings"`
	// StartedBy is the command by which the launch would replace itself, since that starts an agent on each node: in a Slurm batch script. Each agent
	// then knows more than this plan: the step's run id and port. Empty: there is none.
	StartedBy []string `json:"started_by"`
	// Warnings are what the launch would warn of before it starts.
	Warnings   []string   `json:"warnings"`
	Job        Job        `json:"job"`
	Rendezvous Rendezvous `json:"rendezvous"`
	// Interpreter is the Python that runs the script; nil with --no-python.
	Interpreter *Interpreter `json:"interpreter"`
	Logs        Logs         `json:"logs"`
	// RanksNote says how far the ranks are known.
	RanksNote string   `json:"ranks_note"`
	Workers   []Worker `json:"workers"`
	// Refusal is why the launch would end with code 2 at once; empty where it would not.
	Refusal string `json:"refusal,omitempty"`
}

// Setting is one flag's value and where it came from.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Job is what the nodes of a job have in common, and what is known of this node's place among them.
type Job struct {
	// RunID is empty where each launch takes a fresh one.
	RunID    string `json:"run_id"`
	MinNodes int    `json:"min_nodes"`
	MaxNodes int    `json:"max_nodes"`
	// ExpectedNodes is how many are known to come; nil where that is not known.
	ExpectedNodes *int `json:"expected_nodes"`
	// NodeRank is the rank that this node was given, which is its rank with static and else a hint; nil for none.
	NodeRank     *int   `json:"node_rank"`
	NprocPerNode int    `json:"nproc_per_node"`
	Role         string `json:"role"`
	MaxRestarts  int    `json:"max_restarts"`
}

// Who hosts the store of the rendezvous.
const (
	HostsAlone    = "alone"    // one node: it is in the launcher, and nothing listens
	HostsYes      = "yes"      // this machine, by the first of its agents that binds the port
	HostsNo       = "no"       // another machine, or somebody who is there already
	HostsElection = "election" // nobody: the rendezvous is outside of the agents
	HostsUnknown  = "unknown"
)

// Rendezvous is how the nodes would meet.
type Rendezvous struct {
	Backend  string `json:"backend"`
	Endpoint string `json:"endpoint"`
	// Hosts is one of HostsAlone and its like; HostsWhy is one line for people.
	Hosts    string `json:"hosts"`
	HostsWhy string `json:"hosts_why"`
	// WorkerStore says where the workers' store would listen.
	WorkerStore string `json:"worker_store"`
	// JoinTimeout is how long a node waits for a round, in seconds.
	JoinTimeout float64 `json:"join_timeout"`
	// Finished says that the run id is that of a finished run, and what the launch would do; empty for nothing.
	Finished string `json:"finished,omitempty"`
	// Endpoints are what was found there; empty on one node, where nothing is connected to.
	Endpoints []Endpoint `json:"endpoints"`
}

// Interpreter is the Python that runs the script.
type Interpreter struct {
	Path string `json:"path"`
	// Source is the variable that names it, or PATH.
	Source string `json:"source"`
}

// Logs is where log files would be.
type Logs struct {
	// Folder is that of the run, with XXXXXXXX in place of random characters; empty: nothing is written.
	Folder string `json:"folder"`
	// Temporary says that it goes at the end unless something was written to it.
	Temporary bool `json:"temporary"`
}

// Worker is one worker of this node as the first round would start it.
type Worker struct {
	LocalRank int `json:"local_rank"`
	// Rank is the global rank; nil where the rendezvous decides it.
	Rank    *int     `json:"rank"`
	Command []string `json:"command"`
	// CPUs is the list of those it is bound to, as the kernel writes it; empty for no binding.
	CPUs string `json:"cpus,omitempty"`
	// Env is what elasticrun sets: variables that the launcher's own environment has not, or otherwise.
	Env    []Variable `json:"env"`
	Stdout Stream     `json:"stdout"`
	Stderr Stream     `json:"stderr"`
}

// Variable is one environment variable. Value is nil where it is decided at the start only.
type Variable struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

// Stream is where a worker's stdout or stderr would go.
type Stream struct {
	// Known says that the rest holds; false where it depends on the rank.
	Known   bool `json:"known"`
	Console bool `json:"console"`
	// Prefix starts each line on the console.
	Prefix string `json:"prefix,omitempty"`
	File   string `json:"file,omitempty"`
	// FilteredFile gets copies of lines that a filter selects.
	FilteredFile string `json:"filtered_file,omitempty"`
}

// JSON returns the plan as one indented object, in which lists are never null.
func (p Plan) JSON() ([]byte, error) {
	p.Schema = Schema
	p.Settings, p.Warnings, p.Workers = append([]Setting{}, p.Settings...), append([]string{}, p.Warnings...), append([]Worker{}, p.Workers...)
	p.StartedBy = append([]string{}, p.StartedBy...)
	p.Rendezvous.Endpoints = append([]Endpoint{}, p.Rendezvous.Endpoints...)
	return report.Indented(p)
}
