// Package plural writes numbers of things: 1 node, 2 nodes, 3 processes, 4 entries. Its function is pure.
package plural

import (
	"strconv"
	"strings"
)

// Of returns n and the noun, in the plural unless n is 1. The noun can be a phrase that ends with a noun, such as "idle
// worker".
func Of(n int, noun string) string {
	text := strconv.Itoa(n) + " "
	switch {
	case n == 1:
		return text + noun
	case hasSibilant(noun):
		return text + noun + "es"
	case strings.HasSuffix(noun, "y") && !endsWithVowelAndY(noun):
		return text + strings.TrimSuffix(noun, "y") + "ies"
	}
	return text + noun + "s"
}

func hasSibilant(noun string) bool {
	for _, end := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(noun, end) {
			return true
		}
	}
	return false
}

func endsWithVowelAndY(noun string) bool {
	return len(noun) > 1 && strings.IndexByte("aeiou", noun[len(noun)-2]) >= 0
}
