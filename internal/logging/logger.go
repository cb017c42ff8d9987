package logging

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// New returns elasticrun's log and the queue through which its lines, and events on the console, reach stderr. When the
// queue is full, it drops its oldest lines, so a console that nobody reads does not block the caller. Closing lines
// writes the queued lines and leaves stderr open. If warnings is not nil, it gets every warning, whatever the level.
func New(
	format string, level zerolog.Level, stderr io.Writer, warnings *Warnings,
) (log zerolog.Logger, lines io.WriteCloser) {
	queue := newLineQueue(stderr)
	var out io.Writer = plainJSONWriter{queue}
	if format != "json" {
		out = zerolog.ConsoleWriter{
			Out: queue, TimeFormat: time.DateTime, NoColor: !term.IsTerminal(int(os.Stderr.Fd())),
			FormatPrepare: plainFields,
		}
	}
	if warnings != nil {
		shown := &zerolog.FilteredLevelWriter{Writer: zerolog.LevelWriterAdapter{Writer: out}, Level: level}
		out = zerolog.MultiLevelWriter(shown, warnings)
		level = min(level, zerolog.WarnLevel)
	}
	log = zerolog.New(out).Level(level).With().Timestamp().Logger()
	return log, queue
}

// Notice returns a function that shows one line for people, in order with the log's lines. The line has only the
// program's name before it; in a JSON log it is a record. It shows nothing if level is above warning. log and lines are
// what [New] returned for format.
func Notice(format string, level zerolog.Level, log zerolog.Logger, lines io.Writer) func(line string) {
	return func(line string) {
		switch {
		case level > zerolog.WarnLevel:
		case format == "json":
			Always(log).Msg(line)
		default:
			_, _ = io.WriteString(lines, "elasticrun: "+Line(line)+"\n") // the queue returns no error
		}
	}
}

// Text returns a function that shows a title and lines for people, as [Notice] shows one line. Each line ends with a
// newline, and no other line comes between them. In a JSON log they are one field of one record, which has the level
// "warn" if warning is true.
func Text(
	format string, level zerolog.Level, log zerolog.Logger, lines io.Writer,
) func(warning bool, title, text string) {
	return func(warning bool, title, text string) {
		switch {
		case level > zerolog.WarnLevel:
		case format == "json" && warning:
			log.Warn().Str("text", text).Msg(title)
		case format == "json":
			Always(log).Str("text", text).Msg(title)
		default:
			_, _ = io.WriteString(lines, "elasticrun: "+Line(title)+"\n"+report.Printable(text)) // the queue returns no error
		}
	}
}

// Always begins a log line that no --log-level hides. An event without a level passes every filter; the field shows
// readers the level "info".
func Always(log zerolog.Logger) *zerolog.Event {
	return log.Log().Str(zerolog.LevelFieldName, zerolog.LevelInfoValue) //nolint:zerologlint // the caller sends it
}
