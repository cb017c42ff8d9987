package stacks

import (
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
)

// signs describes the last steps of the workers of a group, and how long they have shown no sign of life.
func signs(workers []Worker) string {
	var steps, quiet span
	for _, w := range workers {
		if w.Life == nil {
			continue
		}
		if w.Life.Step != nil {
			steps.add(*w.Life.Step)
		}
		if w.Life.Sign != "" {
			quiet.add(int64(w.Life.SinceSign().Round(time.Second)))
		}
	}
	text := ""
	if steps.known {
		text += ", step " + steps.text(func(n int64) string { return fmt.Sprint(n) })
	}
	if quiet.known {
		text += ", quiet for " + quiet.text(func(n int64) string { return seconds.Format(time.Duration(n)) })
	}
	return text
}

// span is the lowest and the highest of several numbers.
type span struct {
	low, high int64
	known     bool
}

func (s *span) add(n int64) {
	if !s.known {
		*s = span{n, n, true}
	}
	s.low, s.high = min(s.low, n), max(s.high, n)
}

func (s *span) text(format func(int64) string) string {
	if s.low == s.high {
		return format(s.low)
	}
	return format(s.low) + " to " + format(s.high)
}
