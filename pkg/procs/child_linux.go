package procs

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// forkWorker forks and executes one worker on the calling thread. The kernel kills the worker when that thread, and
// so this process, ends.
func forkWorker(path string, w *worker) (pid int, err error) {
	restore, err := bindThread(w.spec.CPUs)
	if err != nil {
		return 0, err
	}
	defer restore()
	return w.forkExec(path, &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL})
}

// bindThread restricts the calling thread, and its future children, to cpus.
func bindThread(cpus []int) (restore func(), err error) {
	if cpus == nil {
		return func() {}, nil
	}
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, err
	}
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, err
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}
