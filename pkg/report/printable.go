package report

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// escapes are what moves cursors and sets colours and titles on a terminal (ECMA-48: control sequences, and control strings with
// their end).
var escapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[P\]X^_][^\x07\x1b\n]*(\x07|\x1b\\)?`)
})

// Printable makes what a worker wrote fit to be quoted: the report is text in UTF-8, and does nothing to the terminal that
// shows it.
func Printable(s string) string {
	s = escapes().ReplaceAllLiteralString(strings.ToValidUTF8(s, "\uFFFD"), "")
	return strings.Map(func(r rune) rune {
		if steers(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// OneLine makes a value fit for a line of its own: it is never more than that, and does nothing to the terminal that shows it.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// steers tells whether r is a control character, or turns the direction of text, or ends a line.
func steers(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
