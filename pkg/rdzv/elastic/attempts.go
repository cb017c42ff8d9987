package elastic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// The failures of attempts at many addresses and ports fit into one line: each kind of failure appears once, with the
// number of others of its kind.
const (
	maxKinds       = 3   // of failures in the line
	maxAttemptText = 240 // bytes of each
	maxListedPorts = 4
)

// attemptError is what happened at one address and port.
type attemptError struct {
	text string
	kind string // equal for failures that differ only in where they happened
}

// newAttempt describes a failure to reach a store.
func newAttempt(err error) attemptError {
	return attemptError{text: err.Error(), kind: kindOf(err)}
}

// kindOf returns the kind of a failure.
func kindOf(err error) string {
	var dial *coord.DialError
	var refused *coord.RefusedError
	switch {
	case errors.As(err, &refused):
		return "refused: " + refused.Message
	case errors.As(err, &dial):
		return fmt.Sprintf("obstacle %d", dial.Obstacle)
	}
	return err.Error()
}

// summarizeAttempts returns one line about the failures, in the order of the attempts.
func summarizeAttempts(attempts []attemptError) string {
	var texts, kinds []string
	seen := map[string]bool{}
	repeats := map[string]int{}
	for _, a := range attempts {
		if seen[a.kind] && len(attempts) > maxKinds {
			repeats[a.kind]++
			continue
		}
		seen[a.kind] = true
		texts = append(texts, truncate(strings.ReplaceAll(a.text, "\n", "; ")))
		kinds = append(kinds, a.kind)
	}
	more := 0
	for i, kind := range kinds {
		switch n := repeats[kind]; {
		case i >= maxKinds:
			more += 1 + n
		case n > 0:
			texts[i] += fmt.Sprintf(" (and %d more like it)", n)
		}
	}
	line := strings.Join(texts[:min(len(texts), maxKinds)], "; ")
	if more > 0 {
		line += fmt.Sprintf("; and %d more", more)
	}
	return line
}

// truncate cuts a text after maxAttemptText bytes.
func truncate(s string) string {
	if len(s) <= maxAttemptText {
		return s
	}
	n := maxAttemptText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

func joinPorts(ports []int) string {
	texts := make([]string, 0, maxListedPorts)
	for _, port := range ports[:min(len(ports), maxListedPorts)] {
		texts = append(texts, strconv.Itoa(port))
	}
	line := strings.Join(texts, ", ")
	if more := len(ports) - maxListedPorts; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}
