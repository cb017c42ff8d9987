package failure

import (
	"fmt"
	"strings"
)

// Signature is equal for failures that look the same: their kind, exit code and summary are. Numbers in the summary
// count as equal, because steps, pids and addresses differ each time. It is empty for a failure that says nothing of
// its worker, such as a lost peer: two of them need not have the same cause.
func (f Failure) Signature() string {
	if f.Kind.Grade() >= GradeGone {
		return ""
	}
	return fmt.Sprintf("%s %d %s", f.Kind, f.CauseCode(), maskNumbers(f.Summary))
}

// maskNumbers replaces each number, decimal or as in 0x7f3a, with #.
func maskNumbers(s string) string {
	var out strings.Builder
	hex := "0123456789abcdefABCDEF"
	for s != "" {
		digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
		if rest, ok := strings.CutPrefix(s, "0x"); ok {
			digits = 2 + len(rest) - len(strings.TrimLeft(rest, hex))
		}
		if digits > 0 {
			out.WriteByte('#')
			s = s[digits:]
			continue
		}
		out.WriteByte(s[0])
		s = s[1:]
	}
	return out.String()
}
