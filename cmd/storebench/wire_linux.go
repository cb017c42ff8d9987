package main

import (
	"encoding/binary"
	"fmt"
)

// step is a request that is sent in one write, and the length of its reply.
type step struct {
	request []byte
	answer  int
}

// valueSize is the size of every value. Keys are short, one per connection.
const valueSize = 16

func keyOf(conn int) string {
	return fmt.Sprintf("/key%04d", conn)
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func handshake() step {
	validate := binary.LittleEndian.AppendUint32([]byte{0x00}, 0x3C85F7CE)
	return step{append(validate, 0x0d, 1, 2, 3, 4), 4}
}

func add(key string) step {
	return step{binary.LittleEndian.AppendUint64(appendString([]byte{0x04}, key), 1), 8}
}

// set sends a CHECK of the key behind the SET, which has no reply.
func set(key string) step {
	b := appendString([]byte{0x01}, key)
	b = appendString(b, string(make([]byte, valueSize)))
	return step{append(b, onKey(0x05, key)...), 1}
}

func wait(key string) step { return step{onKey(0x06, key), 1} }

func get(key string) step {
	return step{appendString([]byte{0x03}, key), 8 + valueSize}
}

// onKey returns a request with a list of one key.
func onKey(op byte, key string) []byte {
	return appendString(binary.LittleEndian.AppendUint64([]byte{op}, 1), key)
}

// operation is an operation to measure.
type operation struct {
	name  string
	cpu   float64 // target: how much of torch's CPU time it may use
	steps func(key string) []step
}

func operations() []operation {
	return []operation{
		// Not the key that holds a value: ADD needs a number, or no value yet.
		{"add", 1, func(key string) []step { return []step{add("/n" + key)} }},
		{"set", 1, func(key string) []step { return []step{set(key)} }},
		{"get", 0.7, func(key string) []step {
			w, g := wait(key), get(key)
			return []step{{append(w.request, g.request...), w.answer + g.answer}}
		}},
		{"get2", 0.7, func(key string) []step { return []step{wait(key), get(key)} }},
	}
}
