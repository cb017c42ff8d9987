package procs

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// NotIgnored returns the signals among sigs that were not ignored when the process started. nohup and a shell's
// background jobs ignore signals on purpose, and children inherit that. The Go runtime knows it only for SIGHUP and
// SIGINT.
func NotIgnored(sigs []syscall.Signal) []os.Signal {
	var out []os.Signal
	for _, sig := range slices.Compact(slices.Sorted(slices.Values(sigs))) {
		if !signal.Ignored(sig) {
			out = append(out, sig)
		}
	}
	return out
}
