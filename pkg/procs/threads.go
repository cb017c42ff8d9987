package procs

import (
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

// agentThreads is how many threads an agent of so many workers needs: to run Go code, to wait for each worker, to write
// its streams, and spare ones.
func agentThreads(workers int) int {
	return runtime.GOMAXPROCS(0) + spareThreads + workers + min(workers, streamThreads)
}

// guardResources makes what a guard needs of threads, and returns a [*ResourceError] where it may not have enough of
// them or of open files.
func guardResources() error {
	if err := checkOpenFiles(); err != nil {
		return err
	}
	return reserveThreads(guardThreads, guardThreads)
}

// ReserveThreads makes the threads that any agent needs. [NewSupervisor] makes those for the workers. Early in a process
// they cost less memory. It returns a [*ResourceError] where a cgroup has no room for them.
func ReserveThreads() error { return reserveThreads(agentThreads(0), agentThreads(0)) }

// reserveForWorkers adds the threads for so many workers to those of [ReserveThreads].
func reserveForWorkers(workers int) error {
	return reserveThreads(agentThreads(workers), agentThreads(workers)-agentThreads(0))
}

// reserveThreads makes the runtime have n threads that can run goroutines, and returns a [*ResourceError] where a cgroup
// has no room for those of them that are new.
func reserveThreads(n, added int) error {
	if err := checkThreadRoom(added); err != nil {
		return err
	}
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
	return nil
}
