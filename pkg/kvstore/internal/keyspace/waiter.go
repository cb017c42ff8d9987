package keyspace

import (
	"container/list"
	"strings"
)

// Waiter is a wait for several keys. A key counts once it has been set, even if it is deleted later.
type Waiter struct {
	release func()
	missing map[string]*list.Element // by key not yet set: the element of this wait in Space.waiting
}

// waitCost is the approximate number of bytes that a wait uses for each key, besides the key itself.
const waitCost = 256

func newWaiter(release func()) *Waiter {
	return &Waiter{release: release, missing: map[string]*list.Element{}}
}

// Size returns the approximate number of bytes that w uses.
func (w *Waiter) Size() int64 {
	n := int64(waitCost)
	for key := range w.missing {
		n += waitCost + int64(len(key))
	}
	return n
}

// Wait returns nil if every key is present. Otherwise it returns a Waiter, and the operation that sets the last
// missing key calls release, unless Cancel comes first. release must not block and must not call the Space.
func (s *Space) Wait(keys []string, release func()) *Waiter {
	var w *Waiter
	for _, key := range keys {
		if s.Has(key) {
			continue
		}
		if w == nil {
			w = newWaiter(release)
		}
		s.enqueue(w, key)
	}
	return w
}

// enqueue adds w to the waits for key.
func (s *Space) enqueue(w *Waiter, key string) {
	if w.missing[key] != nil {
		return
	}
	queue := s.waiting[key]
	if queue == nil {
		key = strings.Clone(key)
		queue = list.New()
		s.waiting[key] = queue
	} else {
		key = queue.Front().Value.(*queuePos).key
	}
	w.missing[key] = queue.PushBack(&queuePos{w, key})
}

// queuePos is the position of a wait in the queue for one key.
type queuePos struct {
	waiter *Waiter
	key    string
}

// Cancel ends a wait and returns the keys that were still missing, in no order: none if it was already released. Call
// it at most once.
func (s *Space) Cancel(w *Waiter) []string {
	keys := make([]string, 0, len(w.missing))
	for key, element := range w.missing {
		keys = append(keys, key)
		s.dequeue(key, element)
	}
	return keys
}

// dequeue removes element from the waits for key.
func (s *Space) dequeue(key string, element *list.Element) {
	queue := s.waiting[key]
	if queue.Remove(element); queue.Len() == 0 {
		delete(s.waiting, key)
	}
}

// satisfy removes key from the missing keys of every wait, and releases the waits that now miss no key.
func (s *Space) satisfy(key string) {
	queue := s.waiting[key]
	if queue == nil {
		return
	}
	delete(s.waiting, key)
	for element := queue.Front(); element != nil; element = element.Next() {
		element.Value.(*queuePos).waiter.satisfy(key)
	}
}

// satisfyOldest does the same as satisfy, for the oldest wait alone.
func (s *Space) satisfyOldest(key string) {
	queue := s.waiting[key]
	if queue == nil {
		return
	}
	first := queue.Front()
	s.dequeue(key, first)
	first.Value.(*queuePos).waiter.satisfy(key)
}

func (w *Waiter) satisfy(key string) {
	if delete(w.missing, key); len(w.missing) == 0 {
		w.release()
	}
}
