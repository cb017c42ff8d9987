package filetimer

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTimers(t *testing.T) {
	const kill, term = syscall.SIGKILL, syscall.SIGTERM
	start := time.Unix(1_000_000, 0)
	type step struct {
		at      float64 // seconds after start
		pid     int     // 0: nothing arrives
		scope   string
		expires float64 // seconds after start; below 0 a release
		signal  syscall.Signal
		want    []Expiry // without Set and After
		// suspended says that the workers are suspended.
		suspended bool
		next      float64 // seconds after start; below 0 for never
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"expires", []step{
			{at: 0, pid: 7, scope: "a", expires: 0.5, signal: kill, next: 0.5},
			{at: 0.4, next: 0.5},
			{at: 0.5, want: []Expiry{{PID: 7, Scope: "a", Signal: kill}}, next: -1},
			{at: 9, next: -1},
		}},
		{"is checked every second", []step{
			{at: 0, pid: 7, scope: "a", expires: 5, signal: kill, next: 1}, {at: 1, next: 2}, {at: 2.5, next: 3.5},
		}},
		{"released", []step{
			{at: 0, pid: 7, scope: "a", expires: 0.5, signal: kill, next: 0.5},
			{at: 0.4, pid: 7, scope: "a", expires: -1, next: 0.5},
			{at: 0.5, next: -1},
		}},
		{"released by others", []step{
			{at: 0, pid: 7, scope: "a", expires: 0.5, signal: kill, next: 0.5},
			{at: 0, pid: 8, scope: "a", expires: -1, next: 0.5},
			{at: 0, pid: 7, scope: "b", expires: -1, next: 0.5},
			{at: 0.5, want: []Expiry{{PID: 7, Scope: "a", Signal: kill}}, next: -1},
		}},
		{"set again", []step{
			{at: 0, pid: 7, scope: "a", expires: 0.5, signal: kill, next: 0.5},
			{at: 0.4, pid: 7, scope: "a", expires: 0.9, signal: term, next: 0.5},
			{at: 0.5, next: 0.9},
			{at: 0.9, want: []Expiry{{PID: 7, Scope: "a", Signal: term}}, next: -1},
		}},
		{"over already", []step{
			{at: 5, pid: 7, scope: "a", expires: 2, signal: kill, want: []Expiry{{PID: 7, Scope: "a", Signal: kill}}, next: -1},
		}},
		{"never", []step{{at: 0, pid: 7, scope: "a", expires: 1e300, signal: kill, next: -1}}},
		{"without a signal", []step{
			{at: 0, pid: 7, scope: "a", expires: 0.1, next: 0.1},
			{at: 0.1, want: []Expiry{{PID: 7, Scope: "a"}}, next: -1},
		}},
		{"several of a process: the first with a signal counts, and none is left", []step{
			{at: 0, pid: 7, scope: "none", expires: 0.1, next: 0.1},
			{at: 0, pid: 7, scope: "late", expires: 0.3, signal: term, next: 0.1},
			{at: 0, pid: 7, scope: "early", expires: 0.2, signal: kill, next: 0.1},
			{at: 0, pid: 7, scope: "much later", expires: 60, signal: kill, next: 0.1},
			{at: 0.4, want: []Expiry{{PID: 7, Scope: "early", Signal: kill}}, next: -1},
		}},
		{"several processes, in order of expiry", []step{
			{at: 0, pid: 9, scope: "a", expires: 0.1, signal: kill, next: 0.1},
			{at: 0, pid: 7, scope: "a", expires: 0.2, signal: kill, next: 0.1},
			{at: 0, pid: 8, scope: "a", expires: 0.9, signal: kill, next: 0.1},
			{
				at: 0.2, want: []Expiry{{PID: 9, Scope: "a", Signal: kill}, {PID: 7, Scope: "a", Signal: kill}},
				next: 0.9,
			},
		}},
		{"after a pause of the machine they have the time that they had before", []step{
			{at: 0, pid: 7, scope: "a", expires: 5, signal: kill, next: 1},
			{at: 1, next: 2},
			{at: 101, next: 102},
			{at: 102, next: 103},
			{at: 103, next: 104},
			{at: 104, next: 105},
			{at: 104.9, next: 105},
			{at: 105, want: []Expiry{{PID: 7, Scope: "a", Signal: kill}}, next: -1},
		}},
		{"suspended workers have the time that they had before, and that since the last check", []step{
			{at: 0, pid: 7, scope: "a", expires: 3, signal: kill, next: 1},
			{at: 1, next: 2},
			{at: 2, suspended: true, next: 3},
			{at: 3, suspended: true, next: 4},
			{at: 4, suspended: true, next: 5},
			{at: 4.5, next: 5.5},
			{at: 5.5, next: 6.5},
			{at: 6.5, want: []Expiry{{PID: 7, Scope: "a", Signal: kill}}, next: -1},
		}},
		{"a busy machine pauses nothing", []step{
			{at: 0, pid: 7, scope: "a", expires: 0.5, signal: kill, next: 0.5},
			{at: 1.9, want: []Expiry{{PID: 7, Scope: "a", Signal: kill}}, next: -1},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var timers timers
			timers.check(start, false)
			for i, s := range tt.steps {
				now := start.Add(time.Duration(s.at * 1e9))
				timers.check(now, s.suspended)
				if s.pid != 0 {
					expires := s.expires
					if expires >= 0 {
						expires += 1_000_000
					}
					if !timers.apply(request{s.pid, s.scope, expires, s.signal}, now) {
						t.Fatal("no room")
					}
				}
				var got []Expiry
				for _, x := range timers.expire(now) {
					got = append(got, Expiry{PID: x.PID, Scope: x.Scope, Signal: x.Signal})
				}
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("step %d: %s", i, diff)
				}
				next := -1.0
				if at := timers.next(); !at.IsZero() {
					next = at.Sub(start).Round(time.Millisecond).Seconds()
				}
				if next != s.next {
					t.Errorf("step %d: next %v, want %v", i, next, s.next)
				}
			}
		})
	}
}

// Deadlines do not depend on the wall clock after the request has arrived.
func TestDeadlinesAreMonotonic(t *testing.T) {
	var timers timers
	now := time.Now()
	timers.apply(request{7, "a", float64(now.UnixNano())/1e9 + 60, syscall.SIGKILL}, now)
	for _, x := range timers.running {
		if !strings.Contains(x.deadline.String(), " m=") {
			t.Errorf("%v has no monotonic time", x.deadline)
		}
		if x.after.Round(time.Millisecond) != time.Minute {
			t.Errorf("runs for %v", x.after)
		}
	}
}

func TestTimersAreBounded(t *testing.T) {
	var timers timers
	now := time.Unix(1000, 0)
	for i := range maxTimers {
		if !timers.apply(request{i + 1, "a", 2000, syscall.SIGKILL}, now) {
			t.Fatalf("no room for timer %d", i)
		}
	}
	if timers.apply(request{1, "b", 2000, syscall.SIGKILL}, now) {
		t.Error("one more is kept")
	}
	if !timers.apply(request{1, "a", 3000, syscall.SIGKILL}, now) {
		t.Error("a timer cannot be set again")
	}
	if len(timers.running) != maxTimers {
		t.Errorf("%d timers", len(timers.running))
	}
}
