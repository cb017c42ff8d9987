package elastic

import "time"

// clock counts the time in which this process could act. What it slept through, because it or its machine was paused, does not count, so
// that nobody is late who had no chance to be heard.
type clock struct {
	origin  time.Time
	skipped time.Duration
	due     time.Duration // when the alarm was to go off; 0: none was set
}

// late is how late an alarm may be before that is taken for a pause.
const late = time.Second

func newClock() *clock { return &clock{origin: time.Now()} }

// now is the time since the clock was made, without pauses that an alarm has shown.
func (c *clock) now() time.Duration {
	now := time.Since(c.origin) - c.skipped
	if c.due > 0 && now > c.due+late {
		c.skipped += now - c.due
		now = c.due
	}
	return now
}

// alarm sets the timer for a time of this clock, or stops it.
func (c *clock) alarm(t *time.Timer, at time.Duration, set bool) {
	if !set {
		c.due = 0
		t.Stop()
		return
	}
	now := c.now()
	c.due = max(at, now)
	t.Reset(c.due - now)
}
