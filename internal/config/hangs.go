package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// HangTimeout is after how long without progress of any worker a hang is suspected. The zero value suspects none.
type HangTimeout struct {
	// Auto derives the time from the pauses of the job.
	Auto bool
	// After is the time that the user gave, at least a second; 0 without one.
	After time.Duration
}

// parseHangTimeout reads auto, off or a time.
func parseHangTimeout(s string) (HangTimeout, error) {
	switch strings.TrimSpace(s) {
	case "auto":
		return HangTimeout{Auto: true}, nil
	case "off":
		return HangTimeout{}, nil
	}
	d, err := parseSeconds(s)
	switch {
	case err != nil:
		return HangTimeout{}, errors.New("must be auto, off, a number of seconds, or a duration such as 90s or 10m")
	case d != 0 && d < time.Second:
		return HangTimeout{}, errors.New("must be at least a second; 0 or off looks for no hang")
	}
	return HangTimeout{After: d}, nil
}

// parsePattern checks a regular expression; empty for none.
func parsePattern(s string) (string, error) {
	if _, err := regexp.Compile(s); err != nil {
		return "", fmt.Errorf("is not a regular expression: %w", err)
	}
	return s, nil
}
