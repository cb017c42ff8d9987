// Package lazyregexp compiles regular expressions on first use. Most launches need none of them, and a start compiles
// only what it uses.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expr. The function panics if expr is malformed. Any number of
// goroutines may call it.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
