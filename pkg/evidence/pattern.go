package evidence

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first needed: every start of the launcher would pay for it, and most of them never
// look at an error.
type pattern func() *regexp.Regexp

func lazily(expr string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
