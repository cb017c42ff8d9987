package logview

import (
	"container/heap"
	"time"
)

// line is one line of a stream, without its line end.
type line struct {
	at   time.Time // when it was written; zero if that is not known
	text []byte    // valid until the next call of its source
}

// source returns the lines of one stream in order. Their times never decrease.
type source interface {
	// next returns the next line, or false if there is none for now.
	next() (line, bool, error)
}

// merge emits the lines of all sources in the order of their times, until no source has one. Lines of the same time
// are in the order of the sources.
func merge[S source](sources []S, emit func(S, line) error) error {
	var heads heads[S]
	for i, s := range sources {
		l, ok, err := s.next()
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, head[S]{l, s, i})
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 {
		first := &heads[0]
		if err := emit(first.source, first.line); err != nil {
			return err
		}
		l, ok, err := first.source.next()
		switch {
		case err != nil:
			return err
		case ok:
			first.line = l
			heap.Fix(&heads, 0)
		default:
			heap.Pop(&heads)
		}
	}
	return nil
}

// head is the next line of one source.
type head[S source] struct {
	line   line
	source S
	order  int
}

// heads is a heap of head.
type heads[S source] []head[S]

func (h heads[S]) Len() int      { return len(h) }
func (h heads[S]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h heads[S]) Less(i, j int) bool {
	if c := h[i].line.at.Compare(h[j].line.at); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}

func (h *heads[S]) Push(x any) { *h = append(*h, x.(head[S])) }

func (h *heads[S]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
