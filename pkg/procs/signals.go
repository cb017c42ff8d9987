package procs

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// NotIgnored returns those of sigs that were not ignored when the process began:
// nohup and a shell's background jobs mean it, and children inherit it. The Go
// runtime knows that of SIGHUP and SIGINT only.
func NotIgnored(sigs []syscall.Signal) []os.Signal {
	var out []os.Signal
	for _, sig := range slices.Compact(slices.Sorted(slices.Values(sigs))) {
		if !signal.Ignored(sig) {
			out = append(out, sig)
		}
	}
	return out
}
