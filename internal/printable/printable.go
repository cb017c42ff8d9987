// Package printable makes text of unknown origin safe to show to a user: in one line, and without characters that a
// terminal acts on or does not display. Its functions are pure.
package printable

import (
	"strconv"
	"strings"
	"unicode"
)

// Quote returns value unchanged if every character is visible, and otherwise as a quoted Go string. It also quotes a
// value that is empty or that contains a blank or a quote, because a reader could not see where it ends.
func Quote(value string) string {
	unclear := func(r rune) bool { return r == ' ' || r == '"' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if value == "" || strings.ContainsFunc(value, unclear) {
		return strconv.Quote(value)
	}
	return value
}

// Line returns text as one line. Newlines become "; ", and characters that are not printable become escapes: control
// characters, and those that change the direction of writing.
func Line(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ")
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// ShellWord quotes a word for a shell where it needs quotes.
func ShellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,@%+", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
