package procs

import (
	"strconv"
	"strings"
)

// PrefixTemplateEnv names the environment variable that torchrun reads a line
// prefix template from.
const PrefixTemplateEnv = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

const defaultPrefixTemplate = "[${role_name}${local_rank}]:"

// PrefixVars are the values that a line prefix template can name.
type PrefixVars struct {
	Role      string // ${role_name}
	LocalRank int    // ${local_rank}
	Rank      int    // ${rank}, the global rank
	Hostname  string // ${hostname}
}

// LinePrefix returns what a teed line starts with on the console. An empty
// template is torchrun's default, "[${role_name}${local_rank}]:".
func LinePrefix(template string, v PrefixVars) string {
	if template == "" {
		template = defaultPrefixTemplate
	}
	return Substitute(template, map[string]string{
		"role_name":  v.Role,
		"local_rank": strconv.Itoa(v.LocalRank),
		"rank":       strconv.Itoa(v.Rank),
		"hostname":   v.Hostname,
	})
}

// Substitute replaces $name and ${name} by vars[name] and $$ by $. A name is an
// ASCII letter or underscore, then letters, digits and underscores. What is
// unknown or malformed is left as it is. These are the rules of the
// safe_substitute of Python's string.Template, which torchrun applies to worker
// arguments and to line prefixes.
func Substitute(template string, vars map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(template, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, length := placeholder(after)
		value, known := vars[name]
		switch {
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			length = 1
		case known:
			out.WriteString(value)
		default:
			out.WriteByte('$')
			length = 0
		}
		template = after[length:]
	}
}

// placeholder returns the name that s, the text behind a "$", starts with, bare
// or in braces, and the length of it all in s. No name is "".
func placeholder(s string) (name string, length int) {
	rest, braced := strings.CutPrefix(s, "{")
	n := 0
	for n < len(rest) && isNameByte(rest[n], n > 0) {
		n++
	}
	switch {
	case !braced:
		return rest[:n], n
	case n < len(rest) && rest[n] == '}':
		return rest[:n], n + 2
	}
	return "", 0
}

func isNameByte(c byte, digits bool) bool {
	return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || digits && '0' <= c && c <= '9'
}
