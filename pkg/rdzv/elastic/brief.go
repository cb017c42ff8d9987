package elastic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// What was tried at many addresses and ports is told in one short line: each kind of failure once, with the number of those like it.
const (
	maxKinds = 3   // of failures that are told
	maxEach  = 240 // bytes of each
	maxPorts = 4   // that are listed
)

// attemptError is what happened at one place.
type attemptError struct {
	text string
	kind string // the same for what differs only in where it happened
}

// attemptOf is the failure to reach a store somewhere.
func attemptOf(err error) attemptError {
	return attemptError{text: err.Error(), kind: kindOf(err)}
}

// kindOf tells failures of different kinds apart.
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

// brief is the text for what has failed, in the order of the attempts.
func brief(attempts []attemptError) string {
	var texts []string
	at := map[string]int{} // in texts, by kind
	like := map[string]int{}
	var kinds []string
	for _, a := range attempts {
		if _, ok := at[a.kind]; ok && len(attempts) > maxKinds {
			like[a.kind]++
			continue
		}
		at[a.kind] = len(texts)
		texts, kinds = append(texts, begin(strings.ReplaceAll(a.text, "\n", "; "))), append(kinds, a.kind)
	}
	more := 0
	for i, kind := range kinds {
		switch n := like[kind]; {
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

// begin is the beginning of a text that is too long.
func begin(s string) string {
	if len(s) <= maxEach {
		return s
	}
	n := maxEach
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

func joinPorts(ports []int) string {
	texts := make([]string, 0, maxPorts)
	for _, port := range ports[:min(len(ports), maxPorts)] {
		texts = append(texts, strconv.Itoa(port))
	}
	line := strings.Join(texts, ", ")
	if more := len(ports) - maxPorts; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}
