package limits

import (
	"runtime"
	"sync"
)

// ReserveThreads makes the Go runtime have at least n threads.
func ReserveThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // no other goroutine can run on a locked thread, so the next one needs another thread
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}
