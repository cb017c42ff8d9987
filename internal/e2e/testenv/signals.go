package testenv

import (
	"os"
	"os/signal"
	"syscall"
)

// ResetSignals makes the processes that this one starts handle the signals of a terminal as usual, even if the tests
// run under nohup, or with & in a shell script. A child ignores the signals that its parent ignores, but not those that
// its parent catches.
func ResetSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
