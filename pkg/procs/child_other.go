//go:build !linux

package procs

import (
	"errors"
	"syscall"
)

// Without a subreaper, descendants that leave their session are out of reach.

func becomeSubreaper() error { return nil }

func forkWorker(path string, w *worker) (pid int, err error) {
	if w.spec.CPUs != nil {
		return 0, errors.New("binding to CPUs is not supported on this system")
	}
	return w.forkExec(path, &syscall.SysProcAttr{Setsid: true})
}

// awaitExit blocks until the child pid has exited, and reaps it.
func awaitExit(pid int) Exit {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return Exit{Code: 1, StartErr: err}
		case status.Signaled():
			return Exit{Signal: status.Signal(), CoreDumped: status.CoreDump()}
		default:
			return Exit{Code: status.ExitStatus()}
		}
	}
}

func hasExited(int) bool                                { return false }
func isEnding(int) bool                                 { return false }
func reap(int) bool                                     { return true }
func noChildren() bool                                  { return true }
func firstDeadOrphan(func(int) bool) int                { return 0 }
func adoptedChildren(func(int) bool) ([]process, error) { return nil, nil }
func readChild(int, bool) (process, bool)               { return process{}, false }
func jobProcesses() ([]process, error)                  { return nil, nil }
func (process) signal(syscall.Signal)                   {}
func checkRoom(taskNeed) error                          { return nil }
func explainFork(err error) error                       { return err }
func preferForOOM(int)                                  {}
func describeStuck([]process) []string                  { return nil }
func procIsOurs() bool                                  { return true }
