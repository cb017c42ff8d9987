package keyspace

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"strconv"
	"strings"
)

// Space is the state of a store: the keys, the queues, and the waits for either.
//
// A Space keeps the values it is given and shares the values it returns: nobody may change their bytes afterwards. The
// Space itself writes only behind the end of a value, in Append. It copies keys.
type Space struct {
	data   map[string]*entry
	queues map[string]*queue // none is empty
	// waiting holds, for each key with a wait, its *queuePos elements in order of arrival.
	waiting map[string]*list.List
	// size is the approximate number of bytes that data and queues use.
	size int64
}

// The maps hold pointers, because an assignment to a map element would also replace its key, with one that the Space
// does not own.
type (
	entry struct{ value []byte }
	queue struct{ values list.List } // of []byte
)

// ErrNotNumber is [kvstore.ErrNotNumber], which cannot be defined there: kvstore imports this package.
var ErrNotNumber = errors.New("no 64-bit decimal number")

// EntryCost is the approximate number of bytes that a key or a queued value uses besides its own.
const EntryCost = 128

// New returns an empty Space.
func New() *Space {
	return &Space{data: map[string]*entry{}, queues: map[string]*queue{}, waiting: map[string]*list.List{}}
}

// put stores value under key and releases no wait.
func (s *Space) put(key string, value []byte) {
	e := s.data[key]
	if e == nil {
		e = &entry{}
		s.data[strings.Clone(key)] = e
		s.size += EntryCost + int64(len(key))
	}
	s.size += int64(cap(value) - cap(e.value))
	e.value = value
}

// Set stores value under key. No wait misses key any longer.
func (s *Space) Set(key string, value []byte) {
	s.put(key, value)
	s.satisfy(key)
}

// Get returns the value of key, or false if key is missing.
func (s *Space) Get(key string) ([]byte, bool) {
	e, ok := s.data[key]
	if !ok {
		return nil, false
	}
	return e.value, true
}

// Add follows kvstore.Store.Add. Its error is an ErrNotNumber, and the value stays.
func (s *Space) Add(key string, delta int64) (int64, error) {
	sum, err := s.sum(key, delta)
	if err == nil {
		s.Set(key, strconv.AppendInt(nil, sum, 10))
	}
	return sum, err
}

// sum returns the number held under key plus delta.
func (s *Space) sum(key string, delta int64) (int64, error) {
	old, ok := s.Get(key)
	if !ok {
		return delta, nil
	}
	n, err := ParseInt(old)
	if err != nil {
		return 0, fmt.Errorf("add %d to key %.80q: %w", delta, key, err)
	}
	return n + delta, nil
}

// CompareSet follows kvstore.Store.CompareSet.
func (s *Space) CompareSet(key string, expected, desired []byte) []byte {
	held, ok := s.Get(key)
	switch {
	case !ok && len(expected) > 0:
		return expected
	case ok && !bytes.Equal(held, expected):
		return held
	}
	s.Set(key, desired)
	return desired
}

// Has reports whether a wait for key would return at once: key has a value, or a queue that is not empty.
func (s *Space) Has(key string) bool {
	return s.data[key] != nil || s.queues[key] != nil
}

// NumKeys returns the number of keys, without queues.
func (s *Space) NumKeys() int64 { return int64(len(s.data)) }

// Keys returns the keys, in no particular order.
func (s *Space) Keys() iter.Seq[string] { return maps.Keys(s.data) }

// Size returns the approximate number of bytes that the keys and queues use.
func (s *Space) Size() int64 { return s.size }

// Awaited returns the number of keys that a wait is missing.
func (s *Space) Awaited() int { return len(s.waiting) }

// Delete removes key and reports whether it was present.
func (s *Space) Delete(key string) bool {
	e, ok := s.data[key]
	if ok {
		s.size -= EntryCost + int64(len(key)+cap(e.value))
		delete(s.data, key)
	}
	return ok
}

// Append appends value to the value of key, in place if there is room. Slices returned earlier keep their length, so
// their content does not change.
func (s *Space) Append(key string, value []byte) {
	old, _ := s.Get(key)
	s.Set(key, append(old, value...))
}

// Push appends value to the queue of key. The oldest wait for key no longer misses key.
func (s *Space) Push(key string, value []byte) {
	q := s.queues[key]
	if q == nil {
		q = &queue{}
		s.queues[strings.Clone(key)] = q
		s.size += EntryCost + int64(len(key))
	}
	q.values.PushBack(value)
	s.size += EntryCost + int64(cap(value))
	s.satisfyOldest(key)
}

// Pop removes the first value from the queue of key. It returns the value and the length of the queue before; the
// length is 0 if there was none.
func (s *Space) Pop(key string) (value []byte, length int) {
	q := s.queues[key]
	if q == nil {
		return nil, 0
	}
	length = q.values.Len()
	value = q.values.Remove(q.values.Front()).([]byte)
	s.size -= EntryCost + int64(cap(value))
	if length == 1 {
		delete(s.queues, key)
		s.size -= EntryCost + int64(len(key))
	}
	return value, length
}

// QueueLen returns the number of values in the queue of key.
func (s *Space) QueueLen(key string) int {
	if q := s.queues[key]; q != nil {
		return q.values.Len()
	}
	return 0
}

// Arrive counts one more arrival at the barrier key, under that key, as torch 2.14 does. An arrival that makes members
// or more passes: Arrive returns nil, and no wait, whatever its purpose, misses key any longer. Otherwise it returns a
// Waiter, as Wait does. Its error is an ErrNotNumber.
func (s *Space) Arrive(key string, members int64, release func()) (*Waiter, error) {
	arrived, err := s.sum(key, 1)
	if err != nil {
		return nil, err
	}
	s.put(key, strconv.AppendInt(nil, arrived, 10))
	if arrived >= members {
		s.satisfy(key)
		return nil, nil
	}
	w := newWaiter(release)
	s.enqueue(w, key)
	return w, nil
}

// ParseInt reads a decimal number as C's stoll does in base 10: white space, a sign and digits. It ignores what
// follows them.
func ParseInt(value []byte) (int64, error) {
	text := bytes.TrimLeft(value, " \t\n\v\f\r")
	negative := len(text) > 0 && text[0] == '-'
	if negative || (len(text) > 0 && text[0] == '+') {
		text = text[1:]
	}
	// Negative numbers reach one further than positive ones, so this counts down.
	n, digits := int64(0), 0
	for ; digits < len(text) && '0' <= text[digits] && text[digits] <= '9'; digits++ {
		digit := int64(text[digits] - '0')
		if n < (math.MinInt64+digit)/10 {
			return 0, fmt.Errorf("its value %.40q is %w", value, ErrNotNumber)
		}
		n = 10*n - digit
	}
	if digits == 0 || (!negative && n == math.MinInt64) {
		return 0, fmt.Errorf("its value %.40q is %w", value, ErrNotNumber)
	}
	if negative {
		return n, nil
	}
	return -n, nil
}
