package limits

import "fmt"

// The Go runtime ends the program when the kernel refuses it a thread, and workers may use up any limit on threads.
// So guard and agent make the threads that they need before the first worker starts. The runtime keeps an idle
// thread, and uses it before it makes another one.

const (
	// GuardThreads are for signals, the wait for children, the console, and Go code.
	GuardThreads = 5
	// spareThreads are for system calls of an agent that block and do not belong to its workers: signals, stores, the
	// console, the log, files, programs that it runs.
	spareThreads = 5
	// streamThreads is the limit on threads for workers' streams whose files are slow. A hanging file server may need
	// more.
	streamThreads = 16
)

// runtimeThreads is how many threads guard and agent each have besides those that they reserve. They are the Go
// runtime's own, and one to spare, because other programs start and exit between the check of a limit and its use.
const runtimeThreads = 8

// AgentThreads returns how many threads an agent of this many workers needs if cpus threads run Go code. They run Go
// code, wait for each worker and write its streams; some are spare.
func AgentThreads(cpus, workers int) int {
	return cpus + spareThreads + workers + min(workers, streamThreads)
}

// Need says which process counts its tasks (processes and threads), including the tasks of the processes that it will
// start.
type Need struct {
	Guard   bool // the process is a guard, which starts an agent
	CPUs    int  // number of the agent's threads that run Go code
	Workers int  // 0: not known yet
}

func (n Need) total() int {
	all := AgentThreads(n.CPUs, n.Workers) + runtimeThreads + n.Workers
	if n.Guard {
		all += GuardThreads + runtimeThreads
	}
	return all
}

// perWorker is the most that each worker adds to a total: its process, and two threads of the agent.
const perWorker = 3

// adviceSpare is added to the limit that a message recommends. The runtimes of two launches differ by a thread or
// two, and the user should have to raise the limit only once.
const adviceSpare = 4

// advice says how to raise a limit. used tasks are in use, and more are needed.
func (n Need) advice(used, more int) string {
	least := used + more + adviceSpare
	if n.Workers == 0 {
		return fmt.Sprintf("elasticrun needs %d more, plus %d for each worker: "+
			"raise the limit to at least %d plus %d for each worker",
			more, perWorker, least, perWorker)
	}
	return fmt.Sprintf("elasticrun and its workers (%d on this node) need %d more: raise the limit to at least %d",
		n.Workers, more, least)
}
