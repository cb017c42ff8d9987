package logview

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// colors matches what sets colours and weights of text (ECMA-48, SGR), which does nothing else to a terminal.
var colors = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\x1b\[[0-9;:]{0,64}m`) })

// resetColors ends the colours of a line, which would run into the next one.
const resetColors = "\x1b[0m"

// forTerminal makes a line harmless for the terminal that shows it: what would move the cursor, set a title, send keys or turn
// the direction of writing is shown as text. Tabs and colours stay; a line that sets a colour ends it.
func forTerminal(text []byte) []byte {
	if !bytes.ContainsFunc(text, acts) && utf8.Valid(text) {
		return text
	}
	shown := make([]byte, 0, len(text)+16)
	colored := false
	for len(text) > 0 {
		if color := colors().Find(text); color != nil {
			shown, text, colored = append(shown, color...), text[len(color):], true
			continue
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			shown = fmt.Appendf(shown, `\x%02x`, text[0])
		case !acts(r):
			shown = append(shown, text[:size]...)
		case r < ' ': // as cat -v shows it
			shown = append(shown, '^', byte(r)+'@')
		case r == 0x7f:
			shown = append(shown, "^?"...)
		default:
			shown = fmt.Appendf(shown, `\u%04x`, r)
		}
		text = text[size:]
	}
	if colored {
		shown = append(shown, resetColors...)
	}
	return shown
}

// acts reports whether a terminal does something else with a character than to show it.
func acts(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || strings.ContainsRune(directions, r)
}

// directions are the characters that turn the direction of writing, and those that end a line or a paragraph (UAX #9).
const directions = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
