package printable

import "testing"

func TestQuote(t *testing.T) {
	for value, want := range map[string]string{
		"a/b:1=é": "a/b:1=é", "": `""`, "a b": `"a b"`, `a"b`: `"a\"b"`, "\xff": `"\xff"`, "a\u202eb": `"a\u202eb"`, "a\n": `"a\n"`,
	} {
		if got := Quote(value); got != want {
			t.Errorf("Quote(%q) = %s, want %s", value, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"a b": "a b", "a\nb": "a; b", "a\x1b[2Jb\r": `a\x1b[2Jb\r`, "\x9b": "\uFFFD", "\u202e\u2066": `\u202e\u2066`,
	} {
		if got := Line(text); got != want {
			t.Errorf("Line(%q) = %s, want %s", text, got, want)
		}
	}
}
