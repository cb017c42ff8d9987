package keyspace

import (
	"fmt"
	"slices"
	"strings"
)

// NameKeys sorts keys and returns a text that names the first 16 of them.
func NameKeys(keys []string) string {
	const most = 16
	slices.Sort(keys)
	var b strings.Builder
	b.WriteString("key")
	for i, key := range keys[:min(len(keys), most)] {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %q", key)
	}
	if more := len(keys) - most; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
