package limits

import "fmt"

// The Go runtime ends the program when the kernel refuses it a thread, and workers may use up whatever limit there is on
// threads. So guard and agent make the threads that they will need before the first worker starts. The runtime keeps a
// thread that has nothing to do and takes it before it makes another one.

const (
	// GuardThreads are for signals, the wait for children, the console, and Go code beside them.
	GuardThreads = 5
	// spareThreads are for what blocks in the kernel of an agent beside its workers' affairs: signals, stores, the console,
	// the log, files, programs that it runs.
	spareThreads = 5
	// streamThreads bounds those for workers' streams whose file takes its time; a hanging file server may need more.
	streamThreads = 16
)

// runtimeThreads is how many threads guard and agent each have besides those that they reserve: the Go runtime's own, and
// one to spare, because other programs come and go between the check of a limit and its use.
const runtimeThreads = 8

// AgentThreads is how many threads an agent of so many workers needs, where cpus threads run Go code: for that, to wait
// for each worker, to write its streams, and spare ones.
func AgentThreads(cpus, workers int) int {
	return cpus + spareThreads + workers + min(workers, streamThreads)
}

// Need is how many processes and threads (tasks) a process needs together with those that it will start.
type Need struct {
	Guard   bool // the process is a guard, which will start an agent
	CPUs    int  // how many threads of the agent run Go code
	Workers int  // 0: not known yet
}

func (n Need) total() int {
	all := AgentThreads(n.CPUs, n.Workers) + runtimeThreads + n.Workers
	if n.Guard {
		all += GuardThreads + runtimeThreads
	}
	return all
}

// perWorker is what each worker adds to a total, at most: its process, and two threads of the agent.
const perWorker = 3

// adviceSpare is added to the limit that a message advises: the runtimes of two launches differ by a thread or two, and
// the user should have to raise the limit once.
const adviceSpare = 4

// advice says how to raise a limit, of which so many tasks are in use and so many more are needed.
func (n Need) advice(used, more int) string {
	least := used + more + adviceSpare
	if n.Workers == 0 {
		return fmt.Sprintf("elasticrun needs %d more, plus %d for each worker: raise the limit to at least %d plus %d for each worker",
			more, perWorker, least, perWorker)
	}
	return fmt.Sprintf("elasticrun and its workers (%d on this node) need %d more: raise the limit to at least %d", n.Workers, more, least)
}
