// Package notify runs a user command for each notice about the job and passes it one JSON document on stdin. The
// package knows neither the agent nor the rendezvous: notices follow from the agent's events.
//
// [Notifier.Emit] never blocks. One goroutine runs the command for one notice at a time, with a time limit. The
// goroutine exits after [Notifier.Close].
package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/oneshot"
	"github.com/elasticrun/elasticrun/pkg/events"
)

const (
	// commandLimit is how long the command may take for one notice.
	commandLimit = 10 * time.Second
	// maxWaiting bounds the queue of notices that wait for the command. The oldest notices are dropped.
	maxWaiting = 16
)

// notice is what the command gets. docs/notices.md describes it.
type notice struct {
	Kind Kind `json:"notice"`
	// LeftOut is how many notices before this one were left out, because the command was too slow.
	LeftOut int `json:"left_out,omitempty"`
	// Seq hides the event's number in the event log, because there may be no event log.
	Seq struct{} `json:"seq,omitzero"`
	events.Event
}

// Options configure a [Notifier].
type Options struct {
	// Command is run by sh -c.
	Command string
	Env     []string
	// Only says that this node is the job's only one. Then it sends a notice even about the end of a job that had no
	// round. Windowed says that failures are forgiven after some time, so the count of restarts does not show what is
	// left.
	Only, Windowed bool
	Logger         zerolog.Logger
	// Limit is how long the command may take for one notice; 0 is 10 s.
	Limit time.Duration
}

// Notifier runs the command. Close it.
type Notifier struct {
	opts   Options
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // holds a value while there may be something to do

	mu      sync.Mutex
	name    string // of the script or program
	waiting []notice
	leftOut int
	closing bool

	failed bool // a failure of the command was logged; only the goroutine uses it
}

// New returns a notifier. Its goroutine runs until Close, even if ctx ends.
func New(ctx context.Context, o Options) *Notifier {
	o.Limit = cmp.Or(o.Limit, commandLimit)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Notifier{opts: o, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go n.run(ctx)
	return n
}

// Emit implements events.Sink.
func (n *Notifier) Emit(e events.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.Kind == events.KindLauncherStarted {
		n.name = e.Name
	}
	kind := n.opts.kindOf(e)
	if kind == "" || n.closing {
		return
	}
	e.Name = n.name
	if len(n.waiting) == maxWaiting {
		n.waiting = n.waiting[1:]
		n.leftOut++
	}
	n.waiting = append(n.waiting, notice{Kind: kind, Event: e})
	n.signal()
}

func (n *Notifier) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Close waits until the command has run for the last notice. It waits at most for limit, or for twice Options.Limit if
// limit is 0, and stops waiting when ctx ends. Then it kills a command that still runs. It drops all other waiting
// notices.
func (n *Notifier) Close(ctx context.Context, limit time.Duration) {
	n.mu.Lock()
	n.closing = true
	if more := len(n.waiting) - 1; more > 0 {
		n.waiting, n.leftOut = n.waiting[more:], n.leftOut+more
	}
	n.mu.Unlock()
	n.signal()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(limit, 2*n.opts.Limit))
	defer cancel()
	select {
	case <-n.done:
	case <-ctx.Done():
		n.opts.Logger.Warn().Msg("--notify-cmd does not end: the last notice may be missing")
	}
	n.cancel()
	<-n.done
}

// run runs the command for each notice.
func (n *Notifier) run(ctx context.Context) {
	defer close(n.done)
	for {
		next, ended := n.next()
		switch {
		case ended:
			return
		case next != nil:
			n.send(ctx, *next)
			continue
		}
		select {
		case <-n.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next returns the next notice, or nil if none waits. ended means that no more notices will come.
func (n *Notifier) next() (next *notice, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		return nil, n.closing
	}
	first := n.waiting[0]
	first.LeftOut, n.leftOut, n.waiting = n.leftOut, 0, n.waiting[1:]
	return &first, false
}

// send runs the command with one notice. The first failure is logged.
func (n *Notifier) send(ctx context.Context, what notice) {
	what.Time = what.Time.UTC().Round(time.Microsecond)
	data, err := json.Marshal(what)
	if err != nil {
		n.opts.Logger.Warn().Err(err).Msg("a notice cannot be encoded")
		return
	}
	var out oneshot.Tail
	err = oneshot.Command{
		Argv: []string{"sh", "-c", n.opts.Command}, Env: n.opts.Env, Stdin: bytes.NewReader(append(data, '\n')),
		Stdout: &out, Stderr: &out, Limit: n.opts.Limit, Alone: true,
	}.Run(ctx)
	if err == nil || n.failed {
		return
	}
	n.failed = true
	last := ""
	if _, exited := errors.AsType[*exec.ExitError](err); exited { // otherwise the command may still write
		last = out.LastLine()
	}
	n.opts.Logger.Warn().Err(err).Str("notice", string(what.Kind)).Str("output", last).
		Msg("--notify-cmd has failed; further failures of it are not logged")
}
