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

// Space is the store's state machine: the keys, the queues, and those who wait for either. It does no I/O
// and knows no time. It has one owner at a time.
//
// Values given to Space are kept and values it returns are shared: nobody may change their bytes
// afterwards. Space itself only ever writes behind the end of a value, in append. Of keys it keeps copies.
type Space struct {
	data   map[string]*entry
	queues map[string]*queue // none of them is empty
	// waiting holds, for each key that somebody waits for, its *waiters in the order they came.
	waiting map[string]*list.List
	// size is about the number of bytes that data and queues take.
	size int64
}

// What a map keeps is referred to by pointers: an assignment would replace a key too, by one that Space does not own.
type (
	entry struct{ value []byte }
	queue struct{ values list.List } // of []byte
)

// ErrNotNumber is kvstore.ErrNotNumber.
var ErrNotNumber = errors.New("no 64-bit decimal number")

// EntryCost is about what a key or a queued value takes besides its bytes.
const EntryCost = 128

func New() *Space {
	return &Space{data: map[string]*entry{}, queues: map[string]*queue{}, waiting: map[string]*list.List{}}
}

// put stores value under key and releases nobody.
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

func (s *Space) Set(key string, value []byte) {
	s.put(key, value)
	s.arrived(key)
}

func (s *Space) Get(key string) ([]byte, bool) {
	e, ok := s.data[key]
	if !ok {
		return nil, false
	}
	return e.value, true
}

// add follows Store.Add. Its error is an ErrNotNumber and leaves the value as it was.
func (s *Space) Add(key string, delta int64) (int64, error) {
	sum, err := s.sum(key, delta)
	if err == nil {
		s.Set(key, strconv.AppendInt(nil, sum, 10))
	}
	return sum, err
}

// plus returns the number held under key plus delta.
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

// compareSet follows Store.CompareSet.
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

// present tells whether a wait for key is over at once: it has a value, or a queue that holds something.
func (s *Space) Has(key string) bool {
	return s.data[key] != nil || s.queues[key] != nil
}

// NumKeys returns the number of keys, queues not counted.
func (s *Space) NumKeys() int64 { return int64(len(s.data)) }

// Keys returns the keys, in no order.
func (s *Space) Keys() iter.Seq[string] { return maps.Keys(s.data) }

// Size is about the number of bytes that the keys and queues take.
func (s *Space) Size() int64 { return s.size }

// Awaited returns the number of keys that somebody waits for.
func (s *Space) Awaited() int { return len(s.waiting) }

func (s *Space) Delete(key string) bool {
	e, ok := s.data[key]
	if ok {
		s.size -= EntryCost + int64(len(key)+cap(e.value))
		delete(s.data, key)
	}
	return ok
}

// append grows the value in place where it has room. Values handed out before keep their length and
// so do not see it.
func (s *Space) Append(key string, value []byte) {
	old, _ := s.Get(key)
	s.Set(key, append(old, value...))
}

// push puts value at the end of queue key and counts key off for the first who waits for it.
func (s *Space) Push(key string, value []byte) {
	q := s.queues[key]
	if q == nil {
		q = &queue{}
		s.queues[strings.Clone(key)] = q
		s.size += EntryCost + int64(len(key))
	}
	q.values.PushBack(value)
	s.size += EntryCost + int64(cap(value))
	s.arrivedFirst(key)
}

// pop takes the first value from queue key and returns it with the queue's length before: 0 where there
// is none.
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

func (s *Space) QueueLen(key string) int {
	if q := s.queues[key]; q != nil {
		return q.values.Len()
	}
	return 0
}

// arrive counts one more arrival at the barrier key, under that key, as torch 2.14 does: the arrival that
// makes it members or more releases all who wait for key, whatever they wait for it, and every later one
// passes. It returns nil if this is such a one, else a waiter, as wait does. Its error is an ErrNotNumber.
func (s *Space) Arrive(key string, members int64, release func()) (*Waiter, error) {
	arrived, err := s.sum(key, 1)
	if err != nil {
		return nil, err
	}
	s.put(key, strconv.AppendInt(nil, arrived, 10))
	if arrived >= members {
		s.arrived(key)
		return nil, nil
	}
	w := newWaiter(release)
	s.enqueue(w, key)
	return w, nil
}

// stoll reads a decimal number as C's stoll does in base 10: white space, a sign and digits; what
// follows them is ignored.
func ParseInt(value []byte) (int64, error) {
	text := bytes.TrimLeft(value, " \t\n\v\f\r")
	negative := len(text) > 0 && text[0] == '-'
	if negative || (len(text) > 0 && text[0] == '+') {
		text = text[1:]
	}
	// Downwards, since there is one negative number more than there are positive ones.
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
