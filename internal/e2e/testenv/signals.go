package testenv

import (
	"os"
	"os/signal"
	"syscall"
)

// ResetSignals makes the processes that this one starts not ignore the signals of a terminal, also if the tests run
// under nohup, or with & in a shell script: what a process ignores its children ignore too, and what it catches they do
// not.
func ResetSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
