package logging

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// chanWriter sends each write to the channel.
type chanWriter chan string

func (c chanWriter) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// A line is written without another one after it, however its arrival and the writer's wait for lines interleave.
func TestLineIsNotKeptBack(t *testing.T) {
	t.Parallel()
	out := make(chanWriter)
	log, lines := New("json", zerolog.InfoLevel, out, nil)
	late := time.NewTimer(time.Minute)
	for i := range 20_000 {
		late.Reset(time.Minute)
		log.Info().Int("i", i).Send()
		select {
		case <-out:
		case <-late.C:
			t.Fatalf("line %d is not written", i)
		}
	}
	if err := lines.Close(); err != nil {
		t.Error(err)
	}
}

// If nobody reads, writers go on, the oldest lines are dropped, and Close says how many.
func TestFullQueueDropsTheOldestLines(t *testing.T) {
	t.Parallel()
	const more = 7
	var got strings.Builder
	started, read := make(chan struct{}), make(chan struct{})
	_, lines := New("json", zerolog.InfoLevel, writerFunc(func(p []byte) (int, error) {
		select {
		case <-started:
		default:
			close(started)
		}
		<-read
		return got.Write(p)
	}), nil)
	write := func(line string) {
		if _, err := io.WriteString(lines, line+"\n"); err != nil {
			t.Error(err)
		}
	}
	write("first")
	<-started
	for range more {
		write("dropped")
	}
	for range maxQueuedLines {
		write("kept")
	}
	close(read)
	if err := lines.Close(); err != nil {
		t.Error(err)
	}
	want := "first\n" + strings.Repeat("kept\n", maxQueuedLines) +
		"elasticrun: 7 lines of elasticrun's own log and events lost: the console was not read in time\n"
	if got.String() != want {
		t.Errorf("got %d bytes that end with %q", got.Len(), got.String()[max(0, got.Len()-200):])
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
