package coord

import (
	"slices"
	"strings"
)

// index holds strings in order. An addition or removal moves at most chunkSize strings and one word for each chunk, which
// for the tens of thousands of keys of a large job is as good as a tree. Its zero value is empty.
type index struct {
	chunks [][]string // none is empty; all strings of one are before those of the next
}

const chunkSize = 256

// find returns the chunk in which s is, or belongs.
func (x *index) find(s string) int {
	n, found := slices.BinarySearchFunc(x.chunks, s, func(chunk []string, s string) int {
		return strings.Compare(chunk[0], s)
	})
	if !found && n > 0 {
		n--
	}
	return n
}

// add adds s, which is not there.
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

// remove removes s, which is there.
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
