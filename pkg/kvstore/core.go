package kvstore

import (
	"bytes"
	"container/list"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// core is the store's state machine: the keys, the queues, and those who wait for either. It does no I/O
// and knows no time. It has one owner at a time.
//
// Values given to core are kept and values it returns are shared: nobody may change their bytes
// afterwards. core itself only ever writes behind the end of a value, in append. Of keys it keeps copies.
type core struct {
	data   map[string]*entry
	queues map[string]*queue // none of them is empty
	// waiting holds, for each key that somebody waits for, its *waiters in the order they came.
	waiting map[string]*list.List
	// size is about the number of bytes that data and queues take.
	size int64
}

// What a map keeps is referred to by pointers: an assignment would replace a key too, by one that core does not own.
type (
	entry struct{ value []byte }
	queue struct{ values list.List } // of []byte
)

// entryCost is about what a key or a queued value takes besides its bytes.
const entryCost = 128

func newCore() *core {
	return &core{data: map[string]*entry{}, queues: map[string]*queue{}, waiting: map[string]*list.List{}}
}

// put stores value under key and releases nobody.
func (c *core) put(key string, value []byte) {
	e := c.data[key]
	if e == nil {
		e = &entry{}
		c.data[strings.Clone(key)] = e
		c.size += entryCost + int64(len(key))
	}
	c.size += int64(cap(value) - cap(e.value))
	e.value = value
}

func (c *core) set(key string, value []byte) {
	c.put(key, value)
	c.countOff(key)
}

func (c *core) get(key string) ([]byte, bool) {
	e, ok := c.data[key]
	if !ok {
		return nil, false
	}
	return e.value, true
}

// add follows Store.Add. Its error is an ErrNotNumber and leaves the value as it was.
func (c *core) add(key string, delta int64) (int64, error) {
	sum, err := c.plus(key, delta)
	if err == nil {
		c.set(key, strconv.AppendInt(nil, sum, 10))
	}
	return sum, err
}

// plus returns the number held under key plus delta.
func (c *core) plus(key string, delta int64) (int64, error) {
	old, ok := c.get(key)
	if !ok {
		return delta, nil
	}
	n, err := stoll(old)
	if err != nil {
		return 0, fmt.Errorf("add %d to key %.80q: %w", delta, key, err)
	}
	return n + delta, nil
}

// compareSet follows Store.CompareSet.
func (c *core) compareSet(key string, expected, desired []byte) []byte {
	held, ok := c.get(key)
	switch {
	case !ok && len(expected) > 0:
		return expected
	case ok && !bytes.Equal(held, expected):
		return held
	}
	c.set(key, desired)
	return desired
}

// present tells whether a wait for key is over at once: it has a value, or a queue that holds something.
func (c *core) present(key string) bool {
	return c.data[key] != nil || c.queues[key] != nil
}

func (c *core) numKeys() int64 { return int64(len(c.data)) }

func (c *core) delete(key string) bool {
	e, ok := c.data[key]
	if ok {
		c.size -= entryCost + int64(len(key)+cap(e.value))
		delete(c.data, key)
	}
	return ok
}

// append grows the value in place where it has room. Values handed out before keep their length and
// so do not see it.
func (c *core) append(key string, value []byte) {
	old, _ := c.get(key)
	c.set(key, append(old, value...))
}

// push puts value at the end of queue key and counts key off for the first who waits for it.
func (c *core) push(key string, value []byte) {
	q := c.queues[key]
	if q == nil {
		q = &queue{}
		c.queues[strings.Clone(key)] = q
		c.size += entryCost + int64(len(key))
	}
	q.values.PushBack(value)
	c.size += entryCost + int64(cap(value))
	c.countOffFirst(key)
}

// pop takes the first value from queue key and returns it with the queue's length before: 0 where there
// is none.
func (c *core) pop(key string) (value []byte, length int) {
	q := c.queues[key]
	if q == nil {
		return nil, 0
	}
	length = q.values.Len()
	value = q.values.Remove(q.values.Front()).([]byte)
	c.size -= entryCost + int64(cap(value))
	if length == 1 {
		delete(c.queues, key)
		c.size -= entryCost + int64(len(key))
	}
	return value, length
}

func (c *core) queueLen(key string) int {
	if q := c.queues[key]; q != nil {
		return q.values.Len()
	}
	return 0
}

// arrive counts one more arrival at the barrier key, under that key, as torch 2.14 does: the arrival that
// makes it members or more releases all who wait for key, whatever they wait for it, and every later one
// passes. It returns nil if this is such a one, else a waiter, as wait does. Its error is an ErrNotNumber.
func (c *core) arrive(key string, members int64, release func()) (*waiter, error) {
	arrived, err := c.plus(key, 1)
	if err != nil {
		return nil, err
	}
	c.put(key, strconv.AppendInt(nil, arrived, 10))
	if arrived >= members {
		c.countOff(key)
		return nil, nil
	}
	w := newWaiter(release)
	c.enlist(w, key)
	return w, nil
}

// stoll reads a decimal number as C's stoll does in base 10: white space, a sign and digits; what
// follows them is ignored.
func stoll(value []byte) (int64, error) {
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
