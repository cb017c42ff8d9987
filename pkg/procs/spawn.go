package procs

import (
	"runtime"
)

// spawner runs functions on one operating-system thread that lives as long as the spawner. Workers are forked there
// for two reasons: PDEATHSIG fires when the forking thread ends, and CPU affinity is a property of that thread.
type spawner struct {
	work chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// The thread is never unlocked. It ends with the goroutine, because its affinity may have been changed.
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

// do runs f on the thread and waits for it.
func (s *spawner) do(f func()) {
	ran := make(chan struct{})
	s.work <- func() {
		defer close(ran)
		f()
	}
	<-ran
}

func (s *spawner) close() {
	close(s.work)
	<-s.done
}
