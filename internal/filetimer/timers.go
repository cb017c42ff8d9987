package filetimer

import (
	"cmp"
	"maps"
	"slices"
	"syscall"
	"time"
)

const (
	// maxTimers bounds the timers that are kept, against a client that sets ever new ones.
	maxTimers = 1 << 16
	// checkInterval is the longest time between two checks of running timers, and maxStall how late a check may be. If a
	// check is later, this process did not run, and the workers probably did not either: job control, a cgroup's freezer
	// or a paused virtual machine has stopped them all.
	checkInterval, maxStall = time.Second, time.Second
	// forever is how far away an expiry must be to count as never.
	forever = 100 * 365 * 24 * time.Hour
)

// Expiry is a process that has let timers expire.
type Expiry struct {
	PID int
	// Scope is that of the expired timer that chose the signal: the first to expire of those with a signal.
	Scope string
	// Signal is what the client wants the process to get; 0 for nothing.
	Signal syscall.Signal
	// Set is when the timer was set, After how long it was to run.
	Set   time.Time
	After time.Duration
}

// timerKey identifies a timer, as in torch's FileTimerServer.
type timerKey struct {
	pid   int
	scope string
}

// timer is a timer that is running.
type timer struct {
	signal        syscall.Signal
	set, deadline time.Time // deadline has a monotonic time
	after         time.Duration
}

// timers are the running timers. The zero value has none.
type timers struct {
	running map[timerKey]timer
	// first is the first deadline, or an earlier time; zero if there is no timer. It is exact after expire.
	first time.Time
	// checked and suspended are the arguments of the last call of check.
	checked   time.Time
	suspended bool
}

// check records that this process runs now, and whether the workers are suspended. If they are, or were at the last
// check, or if the last check was too long ago, check postpones all deadlines by the time since then, because the
// workers have hardly run. Call it at the times that next returns, and before each call of apply and expire.
func (t *timers) check(now time.Time, suspended bool) {
	gap := now.Sub(t.checked)
	paused := suspended || t.suspended || gap > checkInterval+maxStall
	if t.suspended = suspended; paused && len(t.running) > 0 {
		for key, x := range t.running {
			x.deadline = x.deadline.Add(gap)
			t.running[key] = x
		}
		t.first = t.first.Add(gap)
	}
	t.checked = now
}

// next returns when check and expire must be called next; zero for never.
func (t *timers) next() time.Time {
	if soon := t.checked.Add(checkInterval); !t.first.IsZero() && soon.Before(t.first) {
		return soon
	}
	return t.first
}

// apply sets or releases a timer. It returns false if maxTimers are running.
func (t *timers) apply(r request, now time.Time) bool {
	key := timerKey{r.pid, r.scope}
	after, finite := timeLeft(r.expires, now)
	if r.expires < 0 || !finite {
		delete(t.running, key)
		return true
	}
	if _, again := t.running[key]; !again && len(t.running) >= maxTimers {
		return false
	}
	if t.running == nil {
		t.running = make(map[timerKey]timer)
	}
	added := timer{signal: r.signal, set: now, deadline: now.Add(after), after: after}
	t.running[key] = added
	if t.first.IsZero() || added.deadline.Before(t.first) {
		t.first = added.deadline
	}
	return true
}

// timeLeft returns the time from now until a time of the wall clock, at least 0. It is not finite if the time is too
// far away.
func timeLeft(expires float64, now time.Time) (left time.Duration, finite bool) {
	seconds := expires - float64(now.UnixNano())/1e9
	if !(seconds < forever.Seconds()) {
		return 0, false
	}
	return max(0, time.Duration(seconds*float64(time.Second))), true
}

// expire removes the timers that have expired, and all other timers of their processes, and returns the processes in
// order of expiry.
func (t *timers) expire(now time.Time) []Expiry {
	if t.first.IsZero() || t.first.After(now) {
		return nil
	}
	found := make(map[int]timerKey)
	for key, x := range t.running {
		if x.deadline.After(now) {
			continue
		}
		other, again := found[key.pid]
		if !again || t.precedes(key, other) {
			found[key.pid] = key
		}
	}
	var all []Expiry
	for _, key := range slices.SortedFunc(maps.Values(found), func(a, b timerKey) int {
		return cmp.Or(t.running[a].deadline.Compare(t.running[b].deadline), cmp.Compare(a.pid, b.pid))
	}) {
		x := t.running[key]
		all = append(all, Expiry{PID: key.pid, Scope: key.scope, Signal: x.signal, Set: x.set, After: x.after})
	}
	maps.DeleteFunc(t.running, func(key timerKey, _ timer) bool { _, expired := found[key.pid]; return expired })
	t.update()
	return all
}

// precedes reports whether timer a decides about its process, and not timer b: one with a signal before one without,
// and then the first to expire.
func (t *timers) precedes(a, b timerKey) bool {
	x, y := t.running[a], t.running[b]
	if (x.signal > 0) != (y.signal > 0) {
		return x.signal > 0
	}
	return cmp.Or(x.deadline.Compare(y.deadline), cmp.Compare(a.scope, b.scope)) < 0
}

// update makes first exact.
func (t *timers) update() {
	t.first = time.Time{}
	for _, x := range t.running {
		if t.first.IsZero() || x.deadline.Before(t.first) {
			t.first = x.deadline
		}
	}
}
