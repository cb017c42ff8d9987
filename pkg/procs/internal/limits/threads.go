package limits

import (
	"runtime"
	"sync"
)

// ReserveThreads makes the runtime have n threads that can run goroutines.
func ReserveThreads(n int) {
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
