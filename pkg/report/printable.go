package report

import (
	"strings"
	"unicode"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// escapes matches what moves the cursor or sets colors and titles on a terminal: control sequences and complete control
// strings of ECMA-48.
var escapes = lazyregexp.New(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[P\]X^_][^\x07\x1b\n]*(\x07|\x1b\\)?`)

// Printable makes output of a worker safe to quote. The result is valid UTF-8, and has no effect on the terminal that
// shows it.
func Printable(s string) string {
	s = escapes().ReplaceAllLiteralString(strings.ToValidUTF8(s, "\uFFFD"), "")
	return strings.Map(func(r rune) rune {
		if isControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// OneLine makes a value safe to print in one line. The result has no line ends, and no effect on the terminal that
// shows it.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// isControl reports whether r is a control character, changes the direction of text, or ends a line.
func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
