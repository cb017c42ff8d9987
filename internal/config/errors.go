package config

import (
	"strconv"
	"strings"
	"unicode"
)

// UsageError is bad input: a flag, a variable, a config file or the way they are
// combined. Its text is one line. The launcher ends with code 2.
type UsageError struct {
	// Where names the input as the user wrote it: "--nnodes=4:2",
	// "PET_NNODES=4:2" or "elasticrun.yaml: nnodes: 4:2". Empty when it is the
	// command line as a whole.
	Where string
	// Problem says what is wrong and what to do.
	Problem string
}

// Error implements error. The text is printable, whatever the input holds.
func (e *UsageError) Error() string {
	if e.Where == "" {
		return visible(e.Problem)
	}
	return visible(e.Where + ": " + e.Problem)
}

// shown returns a value for use in a one-line message: quoted where it would
// not be readable, or not be seen, as it is.
func shown(value string) string {
	odd := func(r rune) bool { return r == ' ' || r == '"' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if value == "" || strings.ContainsFunc(value, odd) {
		return strconv.Quote(value)
	}
	return value
}

// visible returns text in one line, with escapes in place of what a terminal would act on or not show, such as the characters
// that turn the direction of writing.
func visible(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ") // joined errors have lines
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

// printable makes warnings visible, each in one line.
func printable(warnings []string) []string {
	for i := range warnings {
		warnings[i] = visible(warnings[i])
	}
	return warnings
}
