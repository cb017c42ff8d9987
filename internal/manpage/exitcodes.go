package manpage

import (
	"fmt"
	"strings"
)

// exitCode is a row of a table of docs/exit-codes.md.
type exitCode struct{ code, reason, meaning string }

// exitCodes reads the table below a heading of that page, or the page's first table if heading is empty.
func exitCodes(markdown, heading string) ([]exitCode, error) {
	rest := markdown
	if heading != "" {
		var found bool
		if _, rest, found = strings.Cut(markdown, "\n## "+heading+"\n"); !found {
			return nil, fmt.Errorf("read the exit codes: no heading %q", heading)
		}
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	_, rows, found := strings.Cut(rest, "\n|---|")
	if !found {
		return nil, fmt.Errorf("read the exit codes: no table below %q", heading)
	}
	var codes []exitCode
	for row := range strings.Lines(rows) {
		cells := strings.Split(strings.TrimSpace(row), "|") // the first and the last are empty
		switch {
		case !strings.HasPrefix(row, "| "): // the rest of the ruler line, or the end of the table
			if len(codes) > 0 {
				return codes, nil
			}
			continue
		case len(cells) < 5:
			return nil, fmt.Errorf("read the exit codes: %q has %d cells, not 3", strings.TrimSpace(row), len(cells)-2)
		}
		codes = append(
			codes,
			exitCode{strings.TrimSpace(cells[1]), strings.Trim(cells[2], " `"), strings.TrimSpace(cells[3])},
		)
	}
	return codes, nil
}

// exitStatus writes the section EXIT STATUS.
func (p *page) exitStatus(codes []exitCode) {
	p.section("EXIT STATUS")
	for _, c := range codes {
		term := bold(c.code)
		if c.reason != "" {
			term += ` (reason ` + bold(c.reason) + `)`
		}
		p.entry(term, c.meaning)
	}
}
