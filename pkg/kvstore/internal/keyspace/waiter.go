package keyspace

import (
	"container/list"
	"strings"
)

// waiter is a wait for several keys. Each key is counted off once, when it is set; deleting it later
// does not bring it back.
type Waiter struct {
	release func()
	missing map[string]*list.Element // its place in Space.waiting, per key not yet set
}

// waitCost is about what a wait takes for each key besides the key's bytes.
const waitCost = 256

func newWaiter(release func()) *Waiter {
	return &Waiter{release: release, missing: map[string]*list.Element{}}
}

// size is about the number of bytes that w takes.
func (w *Waiter) Size() int64 {
	n := int64(waitCost)
	for key := range w.missing {
		n += waitCost + int64(len(key))
	}
	return n
}

// wait returns nil if every key is present. Otherwise it returns a waiter, and release is called once,
// within the operation that sets the last missing key, unless cancel comes first. release must not
// block and must not call Space.
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

// enlist makes w wait for key.
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

// place is a waiter's place in the queue for one key.
type queuePos struct {
	waiter *Waiter
	key    string
}

// cancel ends a wait and returns the keys it still missed, in no order: none if it has been released
// before. It is called once at most.
func (s *Space) Cancel(w *Waiter) []string {
	keys := make([]string, 0, len(w.missing))
	for key, element := range w.missing {
		keys = append(keys, key)
		s.dequeue(key, element)
	}
	return keys
}

// leave gives up a place in the queue for key.
func (s *Space) dequeue(key string, element *list.Element) {
	queue := s.waiting[key]
	if queue.Remove(element); queue.Len() == 0 {
		delete(s.waiting, key)
	}
}

// countOff takes key off every wait for it and releases those that miss nothing more.
func (s *Space) arrived(key string) {
	queue := s.waiting[key]
	if queue == nil {
		return
	}
	delete(s.waiting, key)
	for element := queue.Front(); element != nil; element = element.Next() {
		element.Value.(*queuePos).waiter.arrived(key)
	}
}

// countOffFirst is countOff for the one that has waited longest.
func (s *Space) arrivedFirst(key string) {
	queue := s.waiting[key]
	if queue == nil {
		return
	}
	first := queue.Front()
	s.dequeue(key, first)
	first.Value.(*queuePos).waiter.arrived(key)
}

func (w *Waiter) arrived(key string) {
	if delete(w.missing, key); len(w.missing) == 0 {
		w.release()
	}
}
