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

// New makes elasticrun's own log, and the queue through which it and the
// events take their way, so that a console nobody reads never holds up the
// agent or the store. When the queue is full, its oldest lines are lost. Close writes out the rest.
// What warns is told to heard as well, whatever the level, unless that is nil.
func New(format string, level zerolog.Level, stderr io.Writer, heard *Warnings) (log zerolog.Logger, lines io.WriteCloser) {
	stderr = struct{ io.Writer }{stderr} // which Close leaves open
	queue := &lineQueue{stderr: stderr}
	queue.Writer = diode.NewWriter(stderr, 1000, 0, func(missed int) { queue.lost.Add(int64(missed)) })
	var out io.Writer = plainJSONWriter{queue}
	if format != "json" {
		out = zerolog.ConsoleWriter{
			Out: queue, TimeFormat: time.DateTime, NoColor: !term.IsTerminal(int(os.Stderr.Fd())),
			FormatPrepare: plainFields,
		}
	}
	if heard != nil {
		out = zerolog.MultiLevelWriter(&zerolog.FilteredLevelWriter{Writer: zerolog.LevelWriterAdapter{Writer: out}, Level: level}, heard)
		level = min(level, zerolog.WarnLevel)
	}
	log = zerolog.New(out).Level(level).With().Timestamp().Logger()
	return log, queue
}

// lineQueue counts what it has to drop.
type lineQueue struct {
	diode.Writer
	stderr io.Writer
	lost   atomic.Int64
}

// Close writes out what is queued and says how much is not.
func (q *lineQueue) Close() error {
	err := q.Writer.Close()
	if n := q.lost.Load(); n > 0 {
		_, _ = fmt.Fprintf(q.stderr, "elasticrun: %d lines of elasticrun's own log and events were lost: the console was not read in time\n", n)
	}
	return err
}
