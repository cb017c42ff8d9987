package doctor

import (
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// Schema is the version of the JSON form. It changes when a field is removed or changes its meaning, not when one is
// added.
const Schema = 1

// Status is the result of a check.
type Status string

// The statuses, best first.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Check is one judgement.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Value is what was found; one line.
	Value string `json:"value"`
	// Advice is what to do; one line, or empty.
	Advice string `json:"advice,omitempty"`
}

// Report holds all checks of a machine.
type Report struct {
	Schema  int     `json:"schema"`
	Version string  `json:"elasticrun_version"`
	Host    string  `json:"host"`
	Checks  []Check `json:"checks"`
}

// with returns the checks with this status.
func (r Report) with(s Status) []Check {
	var found []Check
	for _, c := range r.Checks {
		if c.Status == s {
			found = append(found, c)
		}
	}
	return found
}

func (c Check) line() string {
	line := c.Name + ": " + c.Value
	if c.Advice != "" {
		line += ": " + c.Advice
	}
	return report.OneLine(line)
}

// Text lists the checks for people, and counts them.
func (r Report) Text() string {
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-5s %-15s %s\n", c.Status, c.Name, report.OneLine(c.Value))
		if c.Advice != "" {
			fmt.Fprintf(&b, "%21s %s\n", "", report.OneLine(c.Advice))
		}
	}
	fmt.Fprintf(&b, "%s: %d ok, %s, %d failed\n", r.Host, len(r.with(OK)), plural.Of(len(r.with(Warn)), "warning"),
		len(r.with(Fail)))
	return b.String()
}

// JSON returns the report as one indented object.
func (r Report) JSON() ([]byte, error) {
	r.Schema, r.Checks = Schema, append([]Check{}, r.Checks...)
	return report.IndentedJSON(r)
}
