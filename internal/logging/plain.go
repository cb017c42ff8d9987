package logging

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// Line makes a text safe for one line of a terminal. Other nodes, and anyone who can reach the store, may have written
// parts of it.
func Line(s string) string {
	return strings.ReplaceAll(report.Printable(s), "\n", "; ")
}

// plainFields applies Line to every text of a log event.
func plainFields(event map[string]any) error {
	for key, value := range event {
		if s, ok := value.(string); ok {
			event[key] = Line(s)
		}
	}
	return nil
}

// JSON escapes the characters that JSON allows and that can control a terminal: DEL, the C1 controls, and those that
// turn the direction of text. The escaped JSON has the same meaning.
func JSON(b []byte) []byte {
	isUnsafe := func(r rune) bool {
		return r == 0x7f || r >= utf8.RuneSelf && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	}
	if !strings.ContainsFunc(string(b), isUnsafe) {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for _, r := range string(b) {
		if isUnsafe(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// plainJSONWriter applies JSON to each line.
type plainJSONWriter struct{ out io.Writer }

func (w plainJSONWriter) Write(line []byte) (int, error) {
	if _, err := w.out.Write(JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
