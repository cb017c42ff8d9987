// Package scheduler says what the surroundings of a launcher know of its job: Slurm, Kubernetes, Open MPI, another
// process manager that speaks PMI, or MASTER_ADDR alone.
//
// # Data flow
//
//	environment, host name, /etc/hosts ─adapter─▶ Facts ─internal/config─▶ what was not given
//
// Each scheduler has one adapter, a pure function. An adapter tells what it finds and where it stands; it
// decides nothing, since it does not know what the user has given. nodeaddr.go alone runs a program.
package scheduler

import (
	"fmt"
	"time"
)

// Lookup returns a variable of the environment, and whether it is set.
type Lookup func(name string) (string, bool)

// Host is what is asked beside the environment.
type Host struct {
	// Name is this machine's own name (os.Hostname).
	Name string
	// Hosts is the content of /etc/hosts; empty if there is none.
	Hosts string
}

// Names of schedulers, as [Facts] has them.
const (
	Slurm      = "slurm"
	Kubernetes = "kubernetes"
	OpenMPI    = "openmpi"
	PMI        = "pmi"
	Plain      = "plain"
)

// Value is something known, and where it stands.
type Value[T any] struct {
	Is T
	// Source is what says so, for people: "SLURM_NODEID=2". Empty: the value is not known.
	Source string
}

// Known tells whether there is a value.
func (v Value[T]) Known() bool { return v.Source != "" }

// Facts is what the surroundings say of the job and of this node.
type Facts struct {
	// Name is the scheduler's name; empty if there is none.
	Name string
	// Job is the scheduler's own name of the job, for messages; may be empty.
	Job string
	// RunID is the same on all nodes of a job, and no other job of its time has it.
	RunID Value[string]
	// RunIDReturns says that a later job may have the same RunID: it is none for a store that outlives the job.
	RunIDReturns bool
	// Endpoint is HOST or HOST:PORT, where the nodes may meet.
	Endpoint Value[string]
	// IsHost says whether this node is the endpoint's host.
	IsHost Value[bool]
	// OneMachine says that all processes of the job were started on this machine.
	OneMachine bool
	// NodeRank is this node's rank, from 0 on.
	NodeRank Value[int]
	// Nodes is the number of agents that are started, one a node.
	Nodes Value[int]
	// Tasks is how many processes like this one were started where it is more than one a node; then TaskRank is this
	// one's rank among them, and OneEach says how to start one a node.
	Tasks    Value[int]
	TaskRank Value[int]
	OneEach  string
	// NoNodes says why a job that is not told its number of nodes cannot be run; empty: it has one node.
	NoNodes *Problem
	// NoEndpoint says what to do where several nodes are told of no endpoint; empty: nothing special.
	NoEndpoint string
	// Attempt is how often the scheduler has started the job again.
	Attempt Value[int]
	// Deadline is when the scheduler ends the job.
	Deadline Value[time.Time]
	// PortKey is what candidate ports are derived from, see [Ports]; empty: the backend's own port.
	PortKey string
	// Launch is for a process on one of several nodes where nobody starts the others: the options of srun that start an
	// agent on each, a list for each component of a heterogeneous job. Nil if not needed.
	Launch [][]string
	// Notes are warnings about what was found, one line each.
	Notes []string
}

// LaunchID is the same in all processes that were started together, and in no others; none of them is started again. That is so in a step of Slurm
// and in a job of mpirun. The pods of a Job of Kubernetes may be replaced, and another Job may have its name.
func (f *Facts) LaunchID() Value[string] {
	if f.PortKey == "" {
		return Value[string]{}
	}
	return f.RunID
}

// Problem is something in the surroundings that cannot be used.
type Problem struct {
	// Where is the variable with its value: "SLURM_NODEID=x".
	Where string
	// Problem says what is wrong with it.
	Problem string
}

// Error implements error.
func (p *Problem) Error() string { return p.Where + ": " + p.Problem }

// adapter asks one scheduler. It returns nil facts where that is not here. Facts beside an error are what could be
// found out all the same.
type adapter func(env Lookup, host Host) (*Facts, error)

// Detect returns what the first scheduler that is here says; its error is a *Problem, and then the facts are what is
// known all the same. mpirun goes first: started in a Slurm job it starts its processes
// through steps of its own, whose variables say nothing of them. A bare PMI comes after Slurm, whose srun speaks it too.
func Detect(env Lookup, host Host) (Facts, error) {
	for _, ask := range []adapter{mpirun, slurm, kubernetes, pmi} {
		if f, err := ask(env, host); f != nil {
			masterAddr(env, f)
			return *f, err
		}
	}
	f := Facts{}
	if masterAddr(env, &f); f.Endpoint.Known() {
		f.Name = Plain
	}
	return f, nil
}

func told(name, text string) string { return name + "=" + text }

func problem(name, text, format string, args ...any) *Problem {
	return &Problem{Where: told(name, text), Problem: fmt.Sprintf(format, args...)}
}
