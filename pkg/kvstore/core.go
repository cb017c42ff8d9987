package kvstore

import (
	"bytes"
	"container/list"
	"fmt"
	"strconv"
)

// core is the store's state machine: the keys, and those who wait for keys. It does no I/O and knows
// no time. It has one owner at a time.
//
// Values given to core are kept and values it returns are shared: nobody may change their bytes
// afterwards. core itself only ever writes behind the end of a value, in append.
type core struct {
	data map[string][]byte
	// waiting holds, for each key that somebody waits for, its *waiters in the order they came.
	waiting map[string]*list.List
}

// waiter is a wait for several keys. Each key is counted off once, when it is set; deleting it later
// does not bring it back.
type waiter struct {
	release func()
	missing map[string]*list.Element // its place in core.waiting, per key not yet set
}

func newCore() *core {
	return &core{data: map[string][]byte{}, waiting: map[string]*list.List{}}
}

func (c *core) set(key string, value []byte) {
	c.data[key] = value
	c.countOff(key)
}

func (c *core) get(key string) ([]byte, bool) {
	value, ok := c.data[key]
	return value, ok
}

// add follows Store.Add. Its error is an ErrNotNumber and leaves the value as it was.
func (c *core) add(key string, delta int64) (int64, error) {
	var sum int64
	if old, ok := c.data[key]; ok {
		n, err := stoll(old)
		if err != nil {
			return 0, fmt.Errorf("add %d to key %.80q: %w", delta, key, err)
		}
		sum = n
	}
	sum += delta
	c.set(key, strconv.AppendInt(nil, sum, 10))
	return sum, nil
}

// compareSet follows Store.CompareSet.
func (c *core) compareSet(key string, expected, desired []byte) []byte {
	held, ok := c.data[key]
	switch {
	case !ok && len(expected) > 0:
		return expected
	case ok && !bytes.Equal(held, expected):
		return held
	}
	c.set(key, desired)
	return desired
}

func (c *core) check(keys []string) bool {
	for _, key := range keys {
		if _, ok := c.data[key]; !ok {
			return false
		}
	}
	return true
}

func (c *core) numKeys() int64 { return int64(len(c.data)) }

func (c *core) delete(key string) bool {
	_, ok := c.data[key]
	delete(c.data, key)
	return ok
}

// append grows the value in place where it has room. Values handed out before keep their length and
// so do not see it.
func (c *core) append(key string, value []byte) {
	c.set(key, append(c.data[key], value...))
}

// wait returns nil if every key is present. Otherwise it returns a waiter, and release is called once,
// within the operation that sets the last missing key, unless cancel comes first. release must not
// block and must not call core.
func (c *core) wait(keys []string, release func()) *waiter {
	w := &waiter{release: release, missing: map[string]*list.Element{}}
	for _, key := range keys {
		if _, ok := c.data[key]; ok || w.missing[key] != nil {
			continue
		}
		queue := c.waiting[key]
		if queue == nil {
			queue = list.New()
			c.waiting[key] = queue
		}
		w.missing[key] = queue.PushBack(w)
	}
	if len(w.missing) == 0 {
		return nil
	}
	return w
}

// cancel ends a wait and returns the keys it still missed, in no order: none if it has been released
// before. It is called once at most.
func (c *core) cancel(w *waiter) []string {
	keys := make([]string, 0, len(w.missing))
	for key, element := range w.missing {
		keys = append(keys, key)
		queue := c.waiting[key]
		if queue.Remove(element); queue.Len() == 0 {
			delete(c.waiting, key)
		}
	}
	return keys
}

// countOff takes key off every wait for it and releases those that miss nothing more.
func (c *core) countOff(key string) {
	queue := c.waiting[key]
	if queue == nil {
		return
	}
	delete(c.waiting, key)
	for element := queue.Front(); element != nil; element = element.Next() {
		w := element.Value.(*waiter)
		if delete(w.missing, key); len(w.missing) == 0 {
			w.release()
		}
	}
}

// stoll reads a decimal number as C's stoll does in base 10: white space, a sign and digits; what
// follows them is ignored.
func stoll(value []byte) (int64, error) {
	text := bytes.TrimLeft(value, " \t\n\v\f\r")
	end := 0
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		end++
	}
	for end < len(text) && '0' <= text[end] && text[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(text[:end]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("its value %.40q is %w", value, ErrNotNumber)
	}
	return n, nil
}
