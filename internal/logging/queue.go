package logging

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/elasticrun/elasticrun/internal/plural"
)

// maxQueuedLines bounds the queue of lines.
const maxQueuedLines = 1000

// lineQueue is a queue of lines that a goroutine writes. When it is full, it drops its oldest lines, so that Write
// never waits for the console. (zerolog's diode.Writer, v1.35.1, may keep a line back until the next one comes, because
// its Waiter.Set wakes the reader without holding the reader's lock; and when it is full, it drops all lines.)
type lineQueue struct {
	out  io.Writer
	done chan struct{} // closed when everything is written

	mu     sync.Mutex
	cond   sync.Cond
	lines  [][]byte // oldest first
	lost   int
	closed bool
}

func newLineQueue(out io.Writer) *lineQueue {
	q := &lineQueue{out: out, done: make(chan struct{})}
	q.cond.L = &q.mu
	go q.drain()
	return q
}

// Write queues a line. It returns no error.
func (q *lineQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == maxQueuedLines {
		q.lines, q.lost = q.lines[1:], q.lost+1
	}
	q.lines = append(q.lines, bytes.Clone(line))
	q.cond.Signal()
	return len(line), nil
}

// Close writes the queued lines, and then the number of dropped lines if there are any. It waits for the console.
func (q *lineQueue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.cond.Signal()
	<-q.done
	return nil
}

// drain writes lines until the queue is closed and empty.
func (q *lineQueue) drain() {
	defer close(q.done)
	for {
		lines, open := q.take()
		for _, line := range lines {
			_, _ = q.out.Write(line) // there is no other place for the error
		}
		if !open {
			break
		}
	}
	if q.lost > 0 {
		_, _ = fmt.Fprintf(q.out,
			"elasticrun: %s of elasticrun's own log and events lost: the console was not read in time\n",
			plural.Of(q.lost, "line"))
	}
}

// take waits for lines and removes them. The last ones come with open=false.
func (q *lineQueue) take() (lines [][]byte, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lines) == 0 && !q.closed {
		q.cond.Wait()
	}
	lines, q.lines = q.lines, nil
	return lines, !q.closed
}
