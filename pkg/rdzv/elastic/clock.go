package elastic

import "time"

// clock counts the time in which this process could act. Pauses of the process or of its machine do not count: during a
// pause the leader cannot hear the agents, so they must not count as late.
type clock struct {
	origin  time.Time
	skipped time.Duration
	due     time.Duration // when the alarm is due; 0 if none is set
}

// late is how late an alarm may be before the delay counts as a pause.
const late = time.Second

func newClock() *clock { return &clock{origin: time.Now()} }

// now returns the time since newClock, without the pauses that an alarm has revealed.
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
