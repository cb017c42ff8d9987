package logging

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/rs/zerolog/diode"
	"golang.org/x/term"
)

// maxQueuedLines bounds the queue of lines.
const maxQueuedLines = 1000

// New returns elasticrun's log and the queue through which its lines, and events on the console, reach stderr. The
// queue keeps a console that nobody reads from blocking the caller: when it is full, it drops its oldest lines. Close
// of lines writes the queued lines and leaves stderr open. If warnings is not nil, it gets every warning, whatever the
// level.
func New(
	format string, level zerolog.Level, stderr io.Writer, warnings *Warnings,
) (log zerolog.Logger, lines io.WriteCloser) {
	stderr = struct{ io.Writer }{stderr} // hides stderr's Close from the queue
	queue := &lineQueue{stderr: stderr}
	queue.Writer = diode.NewWriter(stderr, maxQueuedLines, 0, func(missed int) { queue.lost.Add(int64(missed)) })
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

// lineQueue is a queue of lines that counts those it drops.
type lineQueue struct {
	diode.Writer
	stderr io.Writer
	lost   atomic.Int64
}

// Close writes the queued lines and the number of dropped ones.
func (q *lineQueue) Close() error {
	err := q.Writer.Close()
	if n := q.lost.Load(); n > 0 {
		_, _ = fmt.Fprintf(q.stderr,
			"elasticrun: %d lines of elasticrun's own log and events were lost: the console was not read in time\n", n)
	}
	return err
}

// Always begins a log line that no --log-level hides. An event without a level passes every filter; the field shows
// readers the level "info".
func Always(log zerolog.Logger) *zerolog.Event {
	return log.Log().Str(zerolog.LevelFieldName, zerolog.LevelInfoValue) //nolint:zerologlint // the caller sends it
}
