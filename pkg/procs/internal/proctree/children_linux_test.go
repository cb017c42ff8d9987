package proctree

import (
	"runtime"
	"sync"
	"testing"
)

// TestChildrenShareBuffer checks that a list of children takes one buffer, however many threads this process has. An
// agent reads the list each time a child exits.
func TestChildrenShareBuffer(t *testing.T) {
	const threads, most = 16, 512 << 10 // a buffer takes 64 KiB
	var started, ended sync.WaitGroup
	release := make(chan struct{})
	for range threads {
		started.Add(1)
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started.Done()
			<-release
		})
	}
	started.Wait()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := listedChildPIDs()
	runtime.ReadMemStats(&after)
	close(release)
	ended.Wait()
	if n := after.TotalAlloc - before.TotalAlloc; err != nil || n > most {
		t.Errorf("%d bytes allocated, %v; want at most %d", n, err, most)
	}
}
