package logview

import (
	"container/heap"
	"time"
)

// line is one line of a stream, without its end.
type line struct {
	at   time.Time // when it was written; zero where nothing tells
	text []byte    // valid until its source is asked for the next one
}

// source gives the lines of one stream in their order; their times never go back.
type source interface {
	// next returns the next line, and false where there is none for now.
	next() (line, bool, error)
}

// merge passes on the lines of all sources in the order of their times, until no
// source has one. Lines of the same time are in the order of the sources.
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

// heads is a heap of them.
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
