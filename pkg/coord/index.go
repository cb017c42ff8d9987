package coord

import (
	"slices"
	"strings"
)

// index is a sorted set of strings. Adding or removing one moves at most chunkSize strings plus one word for each
// chunk. For the tens of thousands of keys of a large job that is as fast as a tree. The zero value is an empty index.
type index struct {
	chunks [][]string // sorted chunks; none is empty
}

const chunkSize = 256

// find returns the index of the chunk that contains s or should contain it.
func (x *index) find(s string) int {
	n, found := slices.BinarySearchFunc(x.chunks, s, func(chunk []string, s string) int {
		return strings.Compare(chunk[0], s)
	})
	if !found && n > 0 {
		n--
	}
	return n
}

// add adds s, which must not be present.
func (x *index) add(s string) {
	if len(x.chunks) == 0 {
		x.chunks = [][]string{{s}}
		return
	}
	n := x.find(s)
	at, _ := slices.BinarySearch(x.chunks[n], s)
	x.chunks[n] = slices.Insert(x.chunks[n], at, s)
	if chunk := x.chunks[n]; len(chunk) > chunkSize {
		half := len(chunk) / 2
		x.chunks = slices.Insert(x.chunks, n+1, slices.Clone(chunk[half:]))
		x.chunks[n] = slices.Clone(chunk[:half])
	}
}

// remove removes s, which must be present.
func (x *index) remove(s string) {
	n := x.find(s)
	at, _ := slices.BinarySearch(x.chunks[n], s)
	x.chunks[n] = slices.Delete(x.chunks[n], at, at+1)
	if len(x.chunks[n]) == 0 {
		x.chunks = slices.Delete(x.chunks, n, n+1)
	}
}

// each calls f with every string that begins with prefix, in order.
func (x *index) each(prefix string, f func(string)) {
	for n := x.find(prefix); n < len(x.chunks); n++ {
		at, _ := slices.BinarySearch(x.chunks[n], prefix)
		for _, s := range x.chunks[n][at:] {
			if !strings.HasPrefix(s, prefix) {
				return
			}
			f(s)
		}
	}
}
