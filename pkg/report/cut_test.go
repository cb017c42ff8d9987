package report

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestEnd(t *testing.T) {
	for _, tt := range []struct{ name, s, want string }{
		{"it fits", "0123456789abcdef", "0123456789abcdef"},
		{"whole lines", "first line\nsecond\nthird", "[...]\nthird"},
		{"one long line", strings.Repeat("x", 40) + "0123456789", "[...]\n0123456789"},
		{"the line end is the last byte", strings.Repeat("x", 40) + "012345678\n", "[...]\n012345678\n"},
		{"bytes that are no text", "a\xffb", "a\uFFFDb"},
	} {
		if got := Tail(tt.s, 16); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("aé€😀\n")))).Draw(t, "s")
		limit := rapid.IntRange(16, 64).Draw(t, "limit")
		got := Tail(s, limit)
		end, cut := strings.CutPrefix(got, "[...]\n")
		if len(got) > limit || !utf8.ValidString(got) || !strings.HasSuffix(s, end) {
			t.Fatalf("%q", got)
		}
		if !cut && got != s || len(s) > limit && end == "" {
			t.Fatalf("%q is not the end of %q", got, s)
		}
	})
}
