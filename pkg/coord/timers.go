package coord

import (
	"container/heap"
	"time"
)

// timer is the end of a session or of a key with a TTL, in the core's time.
type timer struct {
	ends    time.Duration
	due     time.Duration // when it is looked at: not after ends
	index   int           // in timers; -1 if it is not there
	session *session      // or
	entry   *entry
}

// timers orders timers by when they are due. That an end moves away, as each keep-alive does it, costs nothing before
// the timer is due by its old one.
type timers struct{ items []*timer }

// set lets t end at that time.
func (ts *timers) set(t *timer, ends time.Duration) {
	t.ends = ends
	switch {
	case t.index < 0:
		t.due = ends
		heap.Push((*timerHeap)(ts), t)
	case ends < t.due:
		t.due = ends
		heap.Fix((*timerHeap)(ts), t.index)
	}
}

// remove takes t out, if it is in.
func (ts *timers) remove(t *timer) {
	if t.index >= 0 {
		heap.Remove((*timerHeap)(ts), t.index)
	}
}

// expired takes out a timer that has ended; nil: there is none.
func (ts *timers) expired(now time.Duration) *timer {
	for len(ts.items) > 0 && ts.items[0].due <= now {
		t := ts.items[0]
		if t.ends <= now {
			heap.Pop((*timerHeap)(ts))
			return t
		}
		t.due = t.ends
		heap.Fix((*timerHeap)(ts), 0)
	}
	return nil
}

// next returns when a timer is due.
func (ts *timers) nextDue() (due time.Duration, ok bool) {
	if len(ts.items) == 0 {
		return 0, false
	}
	return ts.items[0].due, true
}

// timerHeap is timers as package heap wants it.
type timerHeap timers

func (h *timerHeap) Len() int           { return len(h.items) }
func (h *timerHeap) Less(i, j int) bool { return h.items[i].due < h.items[j].due }

func (h *timerHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

func (h *timerHeap) Push(t any) {
	item := t.(*timer)
	item.index = len(h.items)
	h.items = append(h.items, item)
}

func (h *timerHeap) Pop() any {
	last := len(h.items) - 1
	t := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	t.index = -1
	return t
}
