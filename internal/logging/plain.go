package logging

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// Line makes a text fit for one line on a terminal: other nodes, the store and whoever reaches it may have written a part of it.
func Line(s string) string {
	return strings.ReplaceAll(report.Printable(s), "\n", "; ")
}

// plainFields makes every text of a log event a plain line, before the console shows it.
func plainFields(event map[string]any) error {
	for key, value := range event {
		if s, ok := value.(string); ok {
			event[key] = Line(s)
		}
	}
	return nil
}

// JSON escapes what could steer a terminal and is yet allowed in JSON: DEL, the controls above it, and what turns the
// direction of text. The meaning of the JSON stays the same.
func JSON(b []byte) []byte {
	odd := func(r rune) bool {
		return r == 0x7f || r >= utf8.RuneSelf && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	}
	if !strings.ContainsFunc(string(b), odd) {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for _, r := range string(b) {
		if odd(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// plainJSONWriter writes lines of JSON that do nothing to a terminal.
type plainJSONWriter struct{ out io.Writer }

func (w plainJSONWriter) Write(line []byte) (int, error) {
	if _, err := w.out.Write(JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
