// Package seconds parses the times that people write in flags, variables, files and options, and formats times for
// people.
//
// Its functions are pure.
package seconds

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Max is the longest time that Parse accepts, in seconds: about 31 years. A time.Duration can hold 292 years.
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

// Format formats a time for people, in at most two units and with at most tenths of a second: 28ms, 1.5s, 30s, 3m12s,
// 5m, 5h07m, 2d04h. It rounds to the nearest. A time below a millisecond is in microseconds.
func Format(d time.Duration) string {
	switch tenths, whole, minutes := d.Round(100*time.Millisecond), d.Round(time.Second), d.Round(time.Minute); {
	case d < 0:
		return "-" + Format(-max(d, -math.MaxInt64))
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d.Round(time.Millisecond) < time.Second:
		return d.Round(time.Millisecond).String()
	case tenths < time.Minute:
		return tenths.String()
	case whole < time.Hour:
		return pair(whole, time.Minute, "m", time.Second, "s")
	case minutes < 24*time.Hour:
		return pair(minutes, time.Hour, "h", time.Minute, "m")
	default:
		return pair(d.Round(time.Hour), 24*time.Hour, "d", time.Hour, "h")
	}
}

// pair formats d in two units. The second has two digits, and is left out if it is 0.
func pair(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/big, bigName)
	if rest := d % big / small; rest > 0 {
		text += fmt.Sprintf("%02d%s", rest, smallName)
	}
	return text
}
