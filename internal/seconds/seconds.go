// Package seconds parses the times that people write in flags, variables, files and options.
//
// Its function is pure.
package seconds

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Max is the longest time that Parse accepts, in seconds: 31 years, since 292 years are the end of time.Duration.
const Max = 1e9

// Parse parses a time of 0 or more: a number of seconds, or a Go duration such as 1m30s. Its errors are clauses that
// follow the name of the setting.
func Parse(s string) (time.Duration, error) {
	n, err := strconv.ParseFloat(s, 64)
	if d, durationErr := time.ParseDuration(s); err != nil && durationErr == nil {
		n, err = d.Seconds(), nil
	}
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(n):
		return 0, errors.New("must be a number of seconds, or a duration such as 30s or 5m")
	case n < 0:
		return 0, errors.New("must not be negative")
	case n > Max:
		return 0, fmt.Errorf("must be at most %.0f seconds", Max)
	}
	return time.Duration(n * float64(time.Second)), nil
}
