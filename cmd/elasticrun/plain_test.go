package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/logging"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// hostile is what somebody who can write into the store may leave there: a cleared screen, a title, a C1 sequence, text
// that runs backwards, and a line that looks like the launcher's own.
const hostile = "a\x1b[2Jb\x1b]0;title\x07c\u009b31md\u202ee\u2066f\x7fg\nelasticrun: exit_code=0"

// steers reports whether text has characters that control a terminal.
func steers(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	})
}

// Text from the network cannot control the terminal or begin a new line.
func TestHostileTextIsPlain(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"error", ending{err: errors.New(hostile)}.problem()},
		{"refusal", ending{err: fmt.Errorf("join: %w", &coord.RefusedError{Addr: "h:1", Message: hostile})}.problem()},
		{"last line", lastLine(ending{code: 7, note: hostile})},
		{"log", logged(t, "console")},
		{"log as JSON", logged(t, "json")},
		{"status", status.Job{RunID: hostile, Result: hostile, Nodes: []status.Node{{
			Host: hostile, Status: &status.Snapshot{
				State:   hostile,
				Workers: []status.Worker{{State: hostile, LastLine: hostile}},
			},
		}}}.Text()},
	} {
		if steers(tt.text) {
			t.Errorf("%s steers the terminal: %q", tt.name, tt.text)
		}
		for line := range strings.Lines(tt.text) {
			if strings.HasPrefix(line, "elasticrun: exit_code=0") {
				t.Errorf("%s has a line of its own: %q", tt.name, tt.text)
			}
		}
	}
}

// logged is what the launcher's log makes of hostile text, as message, error and field.
func logged(t *testing.T, format string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	log, lines := logging.New(format, zerolog.InfoLevel, w, nil)
	log.Warn().Err(errors.New(hostile)).Str("field", hostile).Msg("agent is refused: " + hostile)
	_ = lines.Close()
	_ = w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if format == "json" {
		var event struct{ Field string }
		if err := json.Unmarshal(text, &event); err != nil || event.Field != hostile {
			t.Errorf("the field is %q, %v", event.Field, err)
		}
	}
	return string(text)
}
