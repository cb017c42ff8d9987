package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// HangTimeout is the time without progress of any worker after which a hang is suspected. The zero value is never.
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

// hangFlags returns the flags of that group about jobs that hang.
func hangFlags() []Flag {
	return []Flag{
		{
			Name: "hang-timeout", Kind: KindSpec, Default: "auto", Placeholder: "SECONDS|auto|off", Group: groupLife,
			Values: []string{"auto", "off"}, parse: as(parseHangTimeout),
			Help: "Suspect a hang when no worker of the job has shown progress for this long, as seen from outside. auto " +
				"waits for 60 seconds or 5 times the longest pause of the job so far, whichever is longer, and only once the " +
				"job has shown a steady rhythm. 0 or off never looks.",
		},
		{
			Name: "hang-action", Kind: KindString, Default: "report", Placeholder: "ACTION", Group: groupLife,
			Values: []string{"report", "restart", "stop"}, parse: as(oneOf("report", "restart", "stop")),
			Help: "What follows a suspected hang: report prints which rank it is and the stacks of all ranks; restart and " +
				"stop do so too, look a second time, and then restart the workers, which is charged as a failure, or end the " +
				"job with code 77. With auto that takes 5 minutes at least.",
		},
		{
			Name: "step-pattern", Kind: KindString, Placeholder: "REGEXP", Group: groupLife, parse: as(parsePattern),
			Help: "A regular expression (RE2) for the lines of workers that name the step of the training. Its first group, " +
				"or the whole match, is a number, as in 'step (\\d+)'. A new step counts as progress.",
		},
	}
}
