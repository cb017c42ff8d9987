package procs

import (
	"fmt"
	"runtime"
	"sync"
)

// The Go runtime ends the program when the kernel refuses it a thread, and workers may use up whatever limit there is on
// threads. So guard and agent make the threads that they will need before the first worker starts. The runtime keeps a
// thread that has nothing to do and takes it before it makes another one.

const (
	// guardThreads are for signals, the wait for children, the console, and Go code beside them.
	guardThreads = 5
	// spareThreads are for what blocks in the kernel of an agent beside its workers' affairs: signals, stores, the console,
	// the log, files, programs that it runs.
	spareThreads = 5
	// streamThreads bounds those for workers' streams whose file takes its time; a hanging file server may need more.
	streamThreads = 16
)

// runtimeThreads is how many threads guard and agent each have besides those that they reserve: the Go runtime's own, and
// one to spare, because other programs come and go between the check of a limit and its use.
const runtimeThreads = 8

// agentThreads is how many threads an agent of so many workers needs, where cpus threads run Go code: for that, to wait
// for each worker, to write its streams, and spare ones.
func agentThreads(cpus, workers int) int {
	return cpus + spareThreads + workers + min(workers, streamThreads)
}

// taskNeed is how many processes and threads (tasks) a process needs together with those that it will start.
type taskNeed struct {
	guard   bool // the process is a guard, which will start an agent
	cpus    int  // how many threads of the agent run Go code
	workers int  // 0: not known yet
}

func (n taskNeed) total() int {
	all := agentThreads(n.cpus, n.workers) + runtimeThreads + n.workers
	if n.guard {
		all += guardThreads + runtimeThreads
	}
	return all
}

// perWorker is what each worker adds to a total, at most: its process, and two threads of the agent.
const perWorker = 3

// adviceSpare is added to the limit that a message advises: the runtimes of two launches differ by a thread or two, and
// the user should have to raise the limit once.
const adviceSpare = 4

// advice says how to raise a limit, of which so many tasks are in use and so many more are needed.
func (n taskNeed) advice(used, more int) string {
	least := used + more + adviceSpare
	if n.workers == 0 {
		return fmt.Sprintf("elasticrun needs %d more, plus %d for each worker: raise the limit to at least %d plus %d for each worker",
			more, perWorker, least, perWorker)
	}
	return fmt.Sprintf("elasticrun and its workers (%d on this node) need %d more: raise the limit to at least %d", n.workers, more, least)
}

// CheckRoom returns a [*ResourceError] where a limit on processes and threads has no room for a guard and an agent, of
// which cpus threads run Go code. A guard calls it before anything that takes a thread. The workers are not known yet.
// [Guard] calls it only below another guard.
func CheckRoom(cpus int) error { return checkRoom(taskNeed{guard: true, cpus: cpus}) }

// guardResources makes what a guard needs of threads, and returns a [*ResourceError] where it may not have enough open
// files.
func guardResources() error {
	if err := checkOpenFiles(); err != nil {
		return err
	}
	reserveThreads(guardThreads)
	return nil
}

// ReserveThreads makes the threads that any agent needs. [NewSupervisor] makes those for the workers. Early in a process
// they cost less memory. It returns a [*ResourceError] where a limit has no room for them.
func ReserveThreads() error { return reserveForWorkers(0) }

// reserveForWorkers adds the threads for so many workers to those of [ReserveThreads]. It returns a [*ResourceError]
// where a limit has no room for them and for the workers' processes.
func reserveForWorkers(workers int) error {
	cpus := runtime.GOMAXPROCS(0)
	if err := checkRoom(taskNeed{cpus: cpus, workers: workers}); err != nil {
		return err
	}
	reserveThreads(agentThreads(cpus, workers))
	return nil
}

// reserveThreads makes the runtime have n threads that can run goroutines.
func reserveThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // while it waits nobody else runs on its thread, so the next one needs another
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}
