package coord

import (
	"container/heap"
	"time"
)

// timer ends a session or deletes a key with a TTL. Its times are core time.
type timer struct {
	ends    time.Duration
	due     time.Duration // the timer's position in the heap; never after ends
	index   int           // position in the heap; -1 if not in it
	session *session      // exactly one of session and entry is set
	entry   *entry
}

// timers is a heap ordered by due. Moving an end to a later time, as each keep-alive does, is O(1): the position in the
// heap is corrected only when the timer's old due time comes.
type timers struct{ items []*timer }

// set makes t expire at ends.
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

// remove removes t if it is in the heap.
func (ts *timers) remove(t *timer) {
	if t.index >= 0 {
		heap.Remove((*timerHeap)(ts), t.index)
	}
}

// expired removes and returns a timer that has expired, or returns nil.
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

// nextDue returns the earliest due time.
func (ts *timers) nextDue() (due time.Duration, ok bool) {
	if len(ts.items) == 0 {
		return 0, false
	}
	return ts.items[0].due, true
}

// timerHeap implements heap.Interface for timers.
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
