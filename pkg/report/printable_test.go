package report

import "testing"

func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"text", "Zürich\n\tx = 1", "Zürich\n\tx = 1"},
		{"colors", "\x1b[1;31mValueError\x1b[0m: no", "ValueError: no"},
		{"cleared screen, moved cursor", "a\x1b[2J\x1b[10;20Hb\x1b[?25lc", "abc"},
		{"title", "a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"},
		{"title without an end", "a\x1b]0;title", "a"},
		{"lone escape and other controls", "a\x1b\x00\x07\r\x7f\u009bb", "ab"},
		{"text that runs backwards", "a\u202eb\u2066c\u200fd\u2028e", "abcde"},
		{"no UTF-8", "a\xff\xfeb\xe2\x82", "a\uFFFDb\uFFFD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Printable(tt.in); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// An unfinished title removes no more than its line.
func TestPrintableUnended(t *testing.T) {
	for s, want := range map[string]string{
		"a\x1b]0;job 7\nboom":   "a\nboom",
		"a\x1bP1;2\nb":          "a\nb",
		"\x1b]0;t\x07whole\x1b": "whole",
	} {
		if got := Printable(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
