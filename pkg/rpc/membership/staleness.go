package membership

import "time"

// staleness measures how long a value in the store has not changed. Only time in which the store responds and the
// reader runs counts. If a read takes longer than maxGap, or starts more than 2*maxGap after the previous one, the
// measurement starts again. So a pause of the store or of the reader is not held against another member.
type staleness struct {
	maxGap time.Duration

	value    string
	since    time.Time // when value was first read
	lastRead time.Time // when the last read returned; zero before the first
}

// fractionOf returns the n-th part of d, but at least a millisecond: no store responds faster, and a ticker panics on
// 0.
func fractionOf(d time.Duration, n int) time.Duration {
	return max(d/time.Duration(n), time.Millisecond)
}

// observe records a read of value, and returns how long value has not changed.
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
