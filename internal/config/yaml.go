package config

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// The messages of the YAML library that name something.
var (
	yamlWrongShape = lazyregexp.New(`^line (\d+): cannot unmarshal .* into map\[string\]interface \{\}$`)
	yamlTwice      = lazyregexp.New(`^line (\d+): mapping key (".*") already defined at line (\d+)$`)
	yamlAnchor     = lazyregexp.New(`^unknown anchor '(.*)' referenced$`)
	yamlTag        = lazyregexp.New("^cannot decode \\S+ `(.*)` as a (\\S+)$")
	yamlAtLine     = lazyregexp.New(`^(line \d+): (.*)$`)
)

// yamlProblem turns a message of the YAML library into one line for users.
func yamlProblem(message string) string {
	text := strings.TrimPrefix(message, "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n") // the first error only
	text = strings.TrimSpace(text)
	if m := yamlWrongShape().FindStringSubmatch(text); m != nil {
		return "line " + m[1] + ": must be keys with values, such as nnodes: 2"
	}
	if m := yamlTwice().FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("line %s: %s is there twice, first in line %s: keep one", m[1], m[2], m[3])
	}
	if m := yamlAnchor().FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("*%s refers to nothing: put a text that begins with * in quotes", m[1])
	}
	if m := yamlTag().FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%q is not of the type %s that stands before it: leave %s out", m[1], m[2], m[2])
	}
	where := ""
	if m := yamlAtLine().FindStringSubmatch(text); m != nil {
		where, text = m[1]+": ", m[2]
	}
	if words := yamlScannerWords(text); words != "" {
		if where == "" { // the library leaves out line 1
			where = "line 1: "
		}
		return where + words
	}
	if words := yamlParserWords(text); words != "" {
		if where != "" { // the library counts these lines from 0, and often names the line after
			where = "near " + where
		}
		return where + words
	}
	return where + "is not valid YAML: " + text
}

// yamlScannerWords returns what a user may do about an error of yaml/v3's scanner, or "".
func yamlScannerWords(problem string) string {
	switch problem {
	case "mapping values are not allowed in this context":
		return "no colon may stand here: put a value that has a colon in quotes, and check that the line above has a colon " +
			"and the same indentation"
	case "could not find expected ':'":
		return "has no colon, or the line before it has none: write KEY: VALUE"
	case "found character that cannot start any token":
		return "begins with a tab, or has a value that begins with @, ` or %: indent with spaces, and put such a value " +
			"in quotes"
	case "found a tab character that violates indentation", "found a tab character where an indentation space is expected":
		return "is indented with a tab: use spaces"
	case "found unexpected end of stream":
		return "the file ends within a text in quotes: close the quotes"
	case "found unknown escape character":
		return `has an unknown escape in double quotes: write \\ for a backslash, or use single quotes`
	case "block sequence entries are not allowed in this context":
		return "has a list after its colon: write the items in lines of their own"
	}
	return ""
}

// yamlParserWords returns what a user may do about an error of yaml/v3's parser, or "".
func yamlParserWords(problem string) string {
	switch problem {
	case "did not find expected ',' or ']'":
		return "a list that begins with [ lacks a comma or its ]"
	case "did not find expected ',' or '}'":
		return "a map that begins with { lacks a comma or its }"
	case "did not find expected key":
		return "a line is indented in another way than the lines above it, or text follows closed quotes"
	case "did not find expected node content":
		return "a list or a map does not end, or a value begins with a comma or a closing bracket: put it in quotes"
	case "did not find expected '-' indicator":
		return "an item of a list does not begin with a dash"
	case "control characters are not allowed":
		return "has a control character: remove it"
	}
	return ""
}

// secondDocument returns the line at which a document follows another one, 0 if there is one document. In YAML, --- at
// the start of a line begins a document, also in a text of several lines.
func secondDocument(data []byte) int {
	content, begin, number := false, 0, 0
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\uFEFF"))) {
		number++
		text := bytes.TrimSpace(line)
		if marker, found := bytes.CutPrefix(line, []byte("---")); found && bytes.IndexAny(marker, " \t\r\n") <= 0 {
			if content {
				begin = number
			}
			text = bytes.TrimSpace(marker)
		}
		if len(text) > 0 && text[0] != '#' && text[0] != '%' {
			if begin > 0 {
				return begin
			}
			content = true
		}
	}
	return 0
}

// checkText reports an error if data is not UTF-8.
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
