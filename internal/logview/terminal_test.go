package logview

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestForTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"": "",
		"step 1\tloss 0.5 °C 漢字 👩‍👩‍👧":     "step 1\tloss 0.5 °C 漢字 👩‍👩‍👧",
		"\x1b[31mred\x1b[0m":               "\x1b[31mred\x1b[0m\x1b[0m",
		"\x1b[38;2;1;2;3mrgb":              "\x1b[38;2;1;2;3mrgb\x1b[0m",
		"\x1b[2J\x1b[Hgone":                "^[[2J^[[Hgone",
		"\x1b]0;title\x07":                 "^[]0;title^G",
		"\x1b]52;c;ZWNobw==\x1b\\":         `^[]52;c;ZWNobw==^[\`,
		"\x1b[6n\x1bc\x1b[>4;1m":           "^[[6n^[c^[[>4;1m",
		"10%\r20%":                         "10%^M20%",
		"a\bb\x7fc\x00":                    "a^Hb^?c^@",
		"\u009b31m \x9b31m":                `\u009b31m \x9b31m`,
		"f\u202e\u2066x\u2069\u200fy":      `f\u202e\u2066x\u2069\u200fy`,
		"a\u2028b":                         `a\u2028b`,
		"caf\xe9":                          `caf\xe9`,
		"\x1b[" + strings.Repeat("1;", 99): "^[[" + strings.Repeat("1;", 99),
	} {
		if got := string(forTerminal([]byte(in))); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzForTerminal(f *testing.F) {
	f.Add([]byte("\x1b[31m\x1b[2J\u202e\x9b\r"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := forTerminal(bytes.Clone(text))
		rest := got
		for len(rest) > 0 {
			if color := colors().Find(rest); color != nil {
				rest = rest[len(color):]
				continue
			}
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError && size == 1 || r != '\n' && acts(r) {
				t.Fatalf("%q became %q", text, got)
			}
			rest = rest[size:]
		}
	})
}
