package evidence

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled on first use. Most launches never examine an error, and should not
// pay for the compilation.
type pattern func() *regexp.Regexp

// lazily returns the pattern for expr.
func lazily(expr string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
