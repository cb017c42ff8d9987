package scheduler

import (
	"strconv"
	"strings"
)

// maxNumber bounds ranks and numbers of nodes, far beyond any real job.
const maxNumber = 1 << 20

// variables reads an adapter's variables and keeps the first problem. Empty ones count as not set.
type variables struct {
	env Lookup
	err error
}

// text returns the first of the variables that is set, and its name.
func (v *variables) text(names ...string) (text, name string) {
	for _, name := range names {
		if text, _ := v.env(name); strings.TrimSpace(text) != "" {
			return strings.TrimSpace(text), name
		}
	}
	return "", ""
}

func (v *variables) set(name string) bool {
	text, _ := v.text(name)
	return text != ""
}

// number returns the first of the variables that is set, which must be a whole number of at least low.
func (v *variables) number(low int, names ...string) Value[int] {
	text, name := v.text(names...)
	if name == "" {
		return Value[int]{}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > maxNumber {
		v.fail(problem(name, text, "must be a whole number between %d and %d", low, maxNumber))
		return Value[int]{}
	}
	return Value[int]{n, told(name, text)}
}

// fail keeps the first problem.
func (v *variables) fail(p *Problem) {
	if v.err == nil {
		v.err = p
	}
}
