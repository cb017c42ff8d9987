package main

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// preemptions turns signals into requests for a preemption. It belongs to the goroutine that receives the signals.
type preemptions struct {
	signals  []syscall.Signal
	requests chan rdzv.Preemption // holds one; nil if no signal asks for a preemption
	first    time.Time            // when the first signal came; zero before
}

func newPreemptions(signals []syscall.Signal) preemptions {
	p := preemptions{signals: signals}
	if len(signals) > 0 {
		p.requests = make(chan rdzv.Preemption, 1)
	}
	return p
}

// take requests a preemption if sig asks for one, and reports whether it did. A second SIGTERM does not ask for one: it
// cuts short the time in which workers save.
func (p *preemptions) take(sig syscall.Signal, from string) bool {
	if !slices.Contains(p.signals, sig) {
		return false
	}
	if p.first.IsZero() {
		p.first = time.Now()
	} else if sig == syscall.SIGTERM && time.Since(p.first) > duplicateWindow {
		return false
	}
	host, _ := os.Hostname()
	by := cmp.Or(host, "a node") + " received " + procs.SignalName(sig) + " " + from
	select {
	case p.requests <- rdzv.Preemption{Signal: sig, By: strings.TrimSpace(by)}:
	default: // one waits already
	}
	return true
}
