package agent

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// maxScope is the longest name of a timer's scope in a summary, in bytes.
const maxScope = 200

// TimerExpiry is a process that has let timers expire.
type TimerExpiry struct {
	PID int
	// Scope is the scope of the timer that chose the signal, printable.
	Scope string
	// Signal is what the process has asked to get; 0 for nothing.
	Signal syscall.Signal
	// Set is when the timer was set, After how long it was to run.
	Set   time.Time
	After time.Duration
}

// timersExpired returns a channel that receives when takeTimers has something to do. It is nil without Options.Timers.
func (a *Agent) timersExpired() <-chan struct{} {
	if a.opts.Timers == nil {
		return nil
	}
	return a.opts.Timers.Expired()
}

// resetTimers forgets the timers of workers that are gone. Call it before others are started.
func (a *Agent) resetTimers() {
	a.expired = nil
	if a.opts.Timers != nil {
		a.opts.Timers.Reset()
	}
}

// takeTimers signals the processes of the group that have let timers expire. What follows is an exit like any other.
func (a *Agent) takeTimers() {
	for _, x := range a.opts.Timers.Take() {
		m, err := a.processes.Member(x.PID, x.Set)
		switch {
		case errors.Is(err, procs.ErrGone):
		case err != nil && !a.foreignTimer:
			a.foreignTimer = true
			a.log.Warn().Int("pid", x.PID).Str("scope", x.Scope).Err(err).
				Msg("a timer of a foreign process is ignored; further ones are not logged")
		case err == nil:
			a.expireTimer(m, x)
		}
	}
}

// expireTimer signals a process that has let a timer expire.
func (a *Agent) expireTimer(m procs.Member, x TimerExpiry) {
	x.After = x.After.Round(10 * time.Millisecond) // it lacks the time that the request took to arrive
	e := a.log.Warn().Str("scope", x.Scope).Str("after", seconds.Format(x.After)).Int("pid", x.PID)
	if m.LocalRank >= 0 {
		e.Int("rank", a.workers[m.LocalRank].GlobalRank).Int("local_rank", m.LocalRank)
	}
	if x.Signal == 0 {
		e.Msg("a worker's timer has expired; it names no signal, so the worker goes on")
		return
	}
	e.Str("signal", procs.SignalName(x.Signal)).Msg("a worker's timer has expired: sending the signal that it names")
	if m.LocalRank >= 0 {
		if a.expired == nil {
			a.expired = make(map[int]expiredTimer)
		}
		a.expired[m.LocalRank] = expiredTimer{x, time.Now()}
	}
	m.Signal(x.Signal)
}

// expiredTimer is an expiry for which a process of a worker was signaled.
type expiredTimer struct {
	TimerExpiry
	at time.Time
}

// timerEffect is how long after the signal of an expired timer a worker may end because of it.
const timerEffect = time.Minute

// withTimer adds to the findings about a worker that one of its timers had expired, if that explains the exit. The exit
// follows from the timer's signal, so it is no evidence of its own.
func (x expiredTimer) withTimer(findings []failure.Finding, exit procs.Exit) []failure.Finding {
	if x.at.IsZero() || exit.Success() || exit.Stopped || exit.At.Sub(x.at) > timerEffect {
		return findings
	}
	findings = slices.DeleteFunc(slices.Clone(findings), func(f failure.Finding) bool {
		switch f.Kind {
		case failure.Killed, failure.Signaled, failure.Crashed, failure.Exited:
			return true
		}
		return false
	})
	expiry := failure.Finding{Kind: failure.TimerExpired, Time: x.at, Text: fmt.Sprintf(
		"the timer of scope %s expired after %s, and pid %d got %s", report.Head(x.Scope, maxScope),
		seconds.Format(x.After), x.PID, procs.SignalName(x.Signal),
	)}
	i := 0
	for i < len(findings) && findings[i].Kind.Grade() < expiry.Kind.Grade() { // such as an OOM kill
		i++
	}
	return slices.Insert(findings, i, expiry)
}
