package logview

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// colors matches sequences that set the color and weight of text (ECMA-48, SGR) and have no other effect on a
// terminal.
var colors = lazyregexp.New(`^\x1b\[[0-9;:]{0,64}m`)

// resetColors ends the colors of a line, which would otherwise continue in the next one.
const resetColors = "\x1b[0m"

// forTerminal makes a line safe for the terminal that shows it. Characters that would move the cursor, set a title,
// send keys or change the direction of writing are shown as text. Tabs and colors stay; a line that sets a color is
// followed by a reset.
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
		case r < ' ': // like cat -v
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

// acts reports whether a terminal does anything but show the character.
func acts(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || strings.ContainsRune(directions, r)
}

// directions are the characters that change the direction of writing, and those that end a line or a paragraph (UAX
// #9).
const directions = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
