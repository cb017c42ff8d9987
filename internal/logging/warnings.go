package logging

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// Warnings is a zerolog.LevelWriter that keeps the first report.MaxWarnings warnings and errors of the log, for the
// report. Its zero value is ready.
type Warnings struct {
	mu    sync.Mutex
	first []report.Warning
	count int
}

// Write implements io.Writer. It drops p, because a line without a level is no warning.
func (w *Warnings) Write(p []byte) (int, error) { return len(p), nil }

// WriteLevel implements zerolog.LevelWriter; p is one event as JSON.
func (w *Warnings) WriteLevel(level zerolog.Level, p []byte) (int, error) {
	if level < zerolog.WarnLevel || level > zerolog.PanicLevel {
		return len(p), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count++; len(w.first) < report.MaxWarnings {
		w.first = append(w.first, report.Warning{
			Time: report.Time{Time: time.Now()}, Level: level.String(), Text: report.Head(warningText(p), report.MaxLine),
		})
	}
	return len(p), nil
}

// List returns the number of warnings, and the first of them.
func (w *Warnings) List() (int, []report.Warning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count, slices.Clone(w.first)
}

// warningText formats an event as "message: error (field=value, ...)".
func warningText(event []byte) string {
	var fields map[string]any
	if json.Unmarshal(event, &fields) != nil {
		return strings.TrimSpace(string(event))
	}
	text := fmt.Sprint(fields[zerolog.MessageFieldName])
	if err, ok := fields[zerolog.ErrorFieldName]; ok {
		text += fmt.Sprint(": ", err)
	}
	for _, known := range []string{
		zerolog.MessageFieldName, zerolog.ErrorFieldName, zerolog.LevelFieldName,
		zerolog.TimestampFieldName,
	} {
		delete(fields, known)
	}
	var more []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		more = append(more, fmt.Sprintf("%s=%v", name, fields[name]))
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	return strings.ReplaceAll(text, "\n", "; ")
}
