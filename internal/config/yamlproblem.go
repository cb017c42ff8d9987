package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// checkText finds out whether data is UTF-8, as every config file is.
func checkText(data []byte) error {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("line %d: is not UTF-8 text", 1+bytes.Count(data[:i], []byte{'\n'}))
		}
		i += size
	}
	return nil
}

// The messages of the YAML library that have a better form for users.
var (
	yamlWrongShape = lazily(`^line (\d+): cannot unmarshal .* into map\[string\]interface \{\}$`)
	yamlTwice      = lazily(`^line (\d+): mapping key (".*") already defined at line (\d+)$`)
	yamlAtLine     = lazily(`^(line \d+): (.*)$`)
)

// lazily compiles a pattern when it is first used: most launches need none.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// yamlProblem says in one line for users what the YAML library says of a file.
func yamlProblem(message string) string {
	text := strings.TrimPrefix(message, "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n") // the first error alone
	text = strings.TrimSpace(text)
	if m := yamlWrongShape().FindStringSubmatch(text); m != nil {
		return "line " + m[1] + ": must be keys with values, such as nnodes: 2"
	}
	if m := yamlTwice().FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("line %s: %s is there twice, first in line %s: keep one", m[1], m[2], m[3])
	}
	if m := yamlAtLine().FindStringSubmatch(text); m != nil {
		return m[1] + ": is not valid YAML: " + m[2]
	}
	return "is not valid YAML: " + text
}
