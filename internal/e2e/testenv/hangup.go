package testenv

import (
	"os"
	"os/signal"
	"syscall"
)

// ResetHangup makes the processes that this one starts not ignore SIGHUP, also if the tests run under nohup: what a
// process ignores its children ignore too, and what it catches they do not.
func ResetHangup() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}
