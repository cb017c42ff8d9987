package liveness

import "time"

const (
	// leastTimeout is the shortest silence that counts when no timeout is given.
	leastTimeout = time.Minute
	// gapFactor is how many times longer than the longest gap so far a silence must be to count.
	gapFactor = 5
	// A rhythm is known once a worker has shown one kind of sign this often, over at least this time.
	leastRecurrences = 10
	leastRhythm      = time.Minute
)

// recurrence counts the signs of one kind of one worker.
type recurrence struct {
	first time.Duration // on the node's clock
	n     int
}

// add counts a sign, and reports whether the kind has a rhythm by now.
func (r *recurrence) add(now time.Duration) bool {
	if r.n == 0 {
		r.first = now
	}
	r.n++
	return r.n >= leastRecurrences && now-r.first >= leastRhythm
}

// cadence is the rhythm in which the workers of a node show signs of life.
type cadence struct {
	learned bool
	longest time.Duration // gap between two signs of the node since the rhythm is known
}

// gap records the time between two signs of the node. A gap longer than the timeout counts too: the workers recovered
// by themselves.
func (c *cadence) gap(d time.Duration) {
	if c.learned {
		c.longest = max(c.longest, d)
	}
}

// timeout returns the silence after which the node is quiet.
func (c *cadence) timeout() time.Duration { return max(leastTimeout, gapFactor*c.longest) }
