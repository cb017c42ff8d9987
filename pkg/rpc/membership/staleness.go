package membership

import "time"

// stillness tells for how long a value in the store has stood, as somebody sees who reads it again and again. Only time in which the store
// answers counts, and the reader runs: a read that took longer than slice, or comes later than two slices after the one
// before, begins anew. So where the store or the reader stands still, nobody is blamed for it.
type staleness struct {
	maxGap time.Duration

	value    string
	since    time.Time // when value was first seen
	lastRead time.Time // when the last read was answered; zero before the first
}

// sliceOf returns the n-th part of d, and at least a millisecond, since no store answers in less, and a ticker of 0 panics.
func fractionOf(d time.Duration, n int) time.Duration {
	return max(d/time.Duration(n), time.Millisecond)
}

// see takes a read of value into account, and returns for how long value has stood.
func (s *staleness) observe(value string, asked, answered time.Time) time.Duration {
	known := !s.lastRead.IsZero() && value == s.value
	prompt := answered.Sub(asked) <= s.maxGap && asked.Sub(s.lastRead) <= 2*s.maxGap
	s.lastRead = answered
	if !known || !prompt {
		s.value, s.since = value, answered
		return 0
	}
	return asked.Sub(s.since)
}
