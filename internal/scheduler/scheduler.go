package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Lookup returns a variable of the environment, and whether it is set.
type Lookup func(name string) (string, bool)

// Host is what the adapters read besides the environment.
type Host struct {
	// Name is the host name of this machine ([os.Hostname]).
	Name string
	// Hosts is the content of /etc/hosts; empty if it does not exist.
	Hosts string
}

// The values of [Facts].Name.
const (
	Slurm      = "slurm"
	Kubernetes = "kubernetes"
	OpenMPI    = "openmpi"
	PMI        = "pmi"
	Plain      = "plain"
)

// Value is a fact and its source.
type Value[T any] struct {
	Is T
	// Source is the evidence, for people: "SLURM_NODEID=2". It is empty if the value is unknown.
	Source string
}

// Known reports whether there is a value.
func (v Value[T]) Known() bool { return v.Source != "" }

// Facts is what the environment says about the job and this node.
type Facts struct {
	// Name is the scheduler's name; empty if there is none.
	Name string
	// Job is the scheduler's name of the job, for messages; may be empty.
	Job string
	// RunID is the same on all nodes of a job, and different from that of every other job that runs at the same time.
	RunID Value[string]
	// RunIDReused says that a later job may have the same RunID, so that it cannot be used with a store that outlives
	// the job.
	RunIDReused bool
	// Endpoint is HOST or HOST:PORT, where the nodes can meet.
	Endpoint Value[string]
	// MoreHosts are further nodes, in the order of ranks from 1 on, at which the nodes can also meet: two at most.
	MoreHosts []string
	// EndpointGiven says that MASTER_ADDR and MASTER_PORT name another endpoint than the scheduler's list of nodes. A
	// store that is not a part of the job may listen there.
	EndpointGiven bool
	// IsHost says whether this node is the endpoint's host.
	IsHost Value[bool]
	// OneMachine says that all processes of the job were started on this machine.
	OneMachine bool
	// NodeRank is this node's rank, starting at 0.
	NodeRank Value[int]
	// Nodes is the number of agents that were started, one per node.
	Nodes Value[int]
	// Tasks is the number of processes that were started, if there are several per node. TaskRank is the rank of this
	// process among them, and OneEach is a command that starts one per node.
	Tasks    Value[int]
	TaskRank Value[int]
	OneEach  string
	// NoNodes says why a job without --nnodes cannot run. If it is nil, such a job has one node.
	NoNodes *Problem
	// NoEndpoint is the advice for several nodes without an endpoint; empty for no special advice.
	NoEndpoint string
	// Attempt is how often the scheduler has restarted the job.
	Attempt Value[int]
	// Deadline is when the scheduler ends the job.
	Deadline Value[time.Time]
	// PortKey is the key for [Ports]. If it is empty, the backend's default port is used.
	PortKey string
	// Launch has the options of srun that start an agent on each node, a list for each component of a heterogeneous
	// job. It is nil if the scheduler has started this process on every node.
	Launch [][]string
	// Notes are warnings about what was found, one line each.
	Notes []string
}

// LaunchID identifies the processes that were started together and that are never restarted: those of a Slurm step or
// an mpirun job. Kubernetes has none: it may replace the pods of a Job, and a later Job may have the same name.
func (f *Facts) LaunchID() Value[string] {
	if f.PortKey == "" {
		return Value[string]{}
	}
	return f.RunID
}

// Problem is a fact that cannot be used, such as a variable with an invalid value.
type Problem struct {
	// Where is the evidence, such as the variable with its value: "SLURM_NODEID=x".
	Where string
	// Problem says what is wrong with it.
	Problem string
}

// Error implements error.
func (p *Problem) Error() string { return p.Where + ": " + p.Problem }

// adapter reads the facts of one scheduler. It returns nil if the process does not run under that scheduler. Facts that
// accompany an error are valid, but incomplete.
type adapter func(env Lookup, host Host) (*Facts, error)

// Detect returns the facts of the first scheduler that it finds; the zero Facts if it finds none. Its error is a
// *Problem; the facts that accompany an error are valid, but incomplete. mpirun comes first: in a Slurm job it starts
// its processes through steps of its own, whose variables do not describe them. Plain PMI comes after Slurm, because
// srun sets PMI's variables too.
func Detect(env Lookup, host Host) (Facts, error) {
	for _, detect := range []adapter{mpirun, slurm, kubernetes, pmi} {
		if f, err := detect(env, host); f != nil {
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

// maxMoreHosts is the most nodes of Facts.MoreHosts.
const maxMoreHosts = 2

// moreHosts returns the nodes of a list for Facts.MoreHosts.
func moreHosts(hosts []string) []string { return hosts[1:min(len(hosts), 1+maxMoreHosts)] }

// assignment returns the source of a fact from one variable.
func assignment(name, text string) string { return name + "=" + text }

func problem(name, text, format string, args ...any) *Problem {
	return &Problem{Where: assignment(name, text), Problem: fmt.Sprintf(format, args...)}
}

// PortKey returns the key of a Slurm job for [Ports], given the run id that the job's agents inferred. It is empty for
// other run ids.
func PortKey(runID string) string {
	key, found := strings.CutPrefix(runID, Slurm+"-")
	job, step, steps := strings.Cut(key, ".")
	step, _, _ = strings.Cut(step, ".") // the rest is the number of requeues
	if !found || !steps || !digits(job) || !digits(step) {
		return ""
	}
	return job + "." + step
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Ports returns 8 different ports that depend on the key alone. All nodes of a job try the same ports in the same
// order, and two jobs on one machine hardly ever share them. They are in 20000-29999, below the ports that Linux
// assigns to outgoing connections (32768 and up). Torch's 29400 and 29500 are not among them.
func Ports(key string) []int {
	const count, low, high = 8, 20000, 29999
	ports := make([]int, 0, count)
	for round := uint64(0); len(ports) < count; round++ {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(key), round))
		port := low + int(binary.BigEndian.Uint64(sum[:8])%(high-low+1))
		if port != 29400 && port != 29500 && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}
