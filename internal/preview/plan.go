package preview

import "github.com/elasticrun/elasticrun/pkg/report"

// Schema is the version of the JSON form. It changes when a field is removed or changes its meaning, not when one is
// added.
const Schema = 1

// Plan is what a launch on this node would do.
type Plan struct {
	Schema  int    `json:"schema"`
	Version string `json:"elasticrun_version"`
	Host    string `json:"host"`
	// ConfigFile is the absolute path of the config file that was read; empty for none.
	ConfigFile string    `json:"config_file,omitempty"`
	Settings   []Setting `json:"settings"`
	// StartedBy is the srun command that would replace the launch in a Slurm batch script and start an agent on each
	// node. Each agent then knows more than this plan: the step's run id and port. It is empty elsewhere.
	StartedBy []string `json:"started_by"`
	// Warnings are those that the launch would log before it starts.
	Warnings   []string   `json:"warnings"`
	Job        Job        `json:"job"`
	Rendezvous Rendezvous `json:"rendezvous"`
	// Interpreter is the Python that runs the script; nil with --no-python.
	Interpreter *Interpreter `json:"interpreter"`
	Logs        Logs         `json:"logs"`
	// RanksNote describes which ranks are known.
	RanksNote string   `json:"ranks_note"`
	Workers   []Worker `json:"workers"`
	// Refusal says why the launch would end with code 2 at once; empty if it would not.
	Refusal string `json:"refusal,omitempty"`
}

// Setting is a flag's value and its source.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Job is what the nodes of a job have in common, and this node's place among them as far as it is known.
type Job struct {
	// RunID is empty if each launch gets a new one.
	RunID    string `json:"run_id"`
	MinNodes int    `json:"min_nodes"`
	MaxNodes int    `json:"max_nodes"`
	// NodesMultiple divides the number of nodes of each round; 1 allows any number.
	NodesMultiple int `json:"nodes_multiple"`
	// ExpectedNodes is the number of nodes that will come; nil if it is not known.
	ExpectedNodes *int `json:"expected_nodes"`
	// NodeRank is the rank that this node was given: its rank with the static backend, else a hint; nil for none.
	NodeRank     *int   `json:"node_rank"`
	NprocPerNode int    `json:"nproc_per_node"`
	Role         string `json:"role"`
	MaxRestarts  int    `json:"max_restarts"`
	// Preemption says what preempts the job and what follows, in one line for people; empty if nothing does.
	Preemption string `json:"preemption,omitempty"`
}

// Values of Rendezvous.Hosts: whether this node hosts the coordination store.
const (
	HostsAlone    = "alone"    // one node: the store is inside the launcher and does not listen
	HostsYes      = "yes"      // this machine: the first of its agents that binds the port
	HostsNo       = "no"       // another machine, or a program that already listens
	HostsElection = "election" // no node: the store is outside of the agents
	HostsUnknown  = "unknown"
)

// Rendezvous is how the nodes would find each other.
type Rendezvous struct {
	Backend  string `json:"backend"`
	Endpoint string `json:"endpoint"`
	// Hosts is one of the Hosts constants; HostsWhy is one line for people.
	Hosts    string `json:"hosts"`
	HostsWhy string `json:"hosts_why"`
	// Keepers says which agents keep the coordination store, and whose loss ends the job, in one line for people; empty if
	// no agent keeps it.
	Keepers string `json:"keepers,omitempty"`
	// Admission says whom the coordination store serves, in one line for people.
	Admission string `json:"admission"`
	// WorkerStore describes where the workers' store would listen.
	WorkerStore string `json:"worker_store"`
	// JoinTimeout bounds the wait for a round, in seconds.
	JoinTimeout float64 `json:"join_timeout"`
	// Finished says that a finished run has this run id, and what the launch would do; else it is empty.
	Finished string `json:"finished,omitempty"`
	// Endpoints is what was found at the candidate endpoints; empty for a job of one node.
	Endpoints []Endpoint `json:"endpoints"`
}

// Interpreter is the Python that runs the script.
type Interpreter struct {
	Path string `json:"path"`
	// Source is where it was found: the variable that names it, elasticrun's virtual environment, or PATH.
	Source string `json:"source"`
	// PythonVersion is as much of its version as its files tell; empty if unknown.
	PythonVersion string `json:"python_version,omitempty"`
	// Torch says whether its files have torch: present, absent or unknown. TorchVersion is from the files too.
	Torch        string `json:"torch"`
	TorchVersion string `json:"torch_version,omitempty"`
}

// Logs is where log files would be written.
type Logs struct {
	// Folder is the folder of the run, with XXXXXXXX in place of random characters; empty if no logs are written.
	Folder string `json:"folder"`
	// Temporary reports whether the folder is removed at the end if nothing was written to it.
	Temporary bool `json:"temporary"`
}

// Worker is one worker of this node as the first round would start it.
type Worker struct {
	LocalRank int `json:"local_rank"`
	// Rank is the global rank; nil where the rendezvous decides it.
	Rank    *int     `json:"rank"`
	Command []string `json:"command"`
	// CPUs lists the CPUs it is bound to, in the kernel's format; empty for no binding.
	CPUs string `json:"cpus,omitempty"`
	// Env lists the variables that elasticrun sets and that the launcher's own environment does not have with that
	// value.
	Env    []Variable `json:"env"`
	Stdout Stream     `json:"stdout"`
	Stderr Stream     `json:"stderr"`
}

// Variable is an environment variable. Value is nil if it is decided only at the start.
type Variable struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

// Stream is where a worker's stdout or stderr would go.
type Stream struct {
	// Known reports whether the other fields are valid; it is false if they depend on the rank.
	Known   bool `json:"known"`
	Console bool `json:"console"`
	// Prefix starts each line on the console.
	Prefix string `json:"prefix,omitempty"`
	File   string `json:"file,omitempty"`
	// FilteredFile gets a copy of each line that a filter selects.
	FilteredFile string `json:"filtered_file,omitempty"`
}

// JSON returns the plan as one indented object, in which lists are never null.
func (p Plan) JSON() ([]byte, error) {
	p.Schema = Schema
	p.Settings, p.Warnings, p.Workers = append([]Setting{}, p.Settings...), append([]string{}, p.Warnings...),
		append([]Worker{}, p.Workers...)
	p.StartedBy = append([]string{}, p.StartedBy...)
	p.Rendezvous.Endpoints = append([]Endpoint{}, p.Rendezvous.Endpoints...)
	return report.IndentedJSON(p)
}
