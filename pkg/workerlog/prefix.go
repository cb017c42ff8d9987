package workerlog

import (
	"strconv"
	"strings"
	"time"
)

// PrefixTemplateEnv is the environment variable from which torchrun reads a line prefix template.
const PrefixTemplateEnv = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

const defaultPrefixTemplate = "[${role_name}${local_rank}]:"

// PrefixVars are the values that a line prefix template can name. ${time} is the time of day at which a line is
// written.
type PrefixVars struct {
	Role      string // ${role_name}
	LocalRank int    // ${local_rank}
	Rank      int    // ${rank}, the global rank
	NodeRank  int    // ${node_rank}
	Hostname  string // ${hostname}
	Stream    string // ${stream}; if it is empty, the template keeps ${stream} unchanged
}

// Prefix is what lines start with: text parts, with the time of day between them. Nil means no prefix; a single part
// has no time.
type Prefix []string

// timeOfDay is the layout of ${time}, in local time. All its values have the same length.
const timeOfDay = "15:04:05.000"

// LinePrefix returns what a teed line starts with on the console. An empty template means torchrun's default,
// "[${role_name}${local_rank}]:".
func LinePrefix(template string, v PrefixVars) Prefix {
	if template == "" {
		template = defaultPrefixTemplate
	}
	const timeHere = "\x00" // occurs in no variable, argument or host name
	vars := map[string]string{
		"role_name":  v.Role,
		"local_rank": strconv.Itoa(v.LocalRank),
		"rank":       strconv.Itoa(v.Rank),
		"node_rank":  strconv.Itoa(v.NodeRank),
		"hostname":   v.Hostname,
		"time":       timeHere,
	}
	if v.Stream != "" {
		vars["stream"] = v.Stream
	}
	return strings.Split(Substitute(template, vars), timeHere)
}

// At returns the prefix of a line that is written at t.
func (p Prefix) At(t time.Time) string {
	if len(p) < 2 {
		return strings.Join(p, "")
	}
	return strings.Join(p, t.Format(timeOfDay))
}

// stampedPrefix is a Prefix as bytes that are ready to be copied.
type stampedPrefix struct {
	parts Prefix
	text  []byte
}

func newStampedPrefix(p Prefix) stampedPrefix {
	return stampedPrefix{p, []byte(p.At(time.Time{}))}
}

// stamp puts the current time into text, which keeps its length.
func (s *stampedPrefix) stamp() {
	if len(s.parts) < 2 {
		return
	}
	now := time.Now().Format(timeOfDay)
	s.text = append(s.text[:0], s.parts[0]...)
	for _, part := range s.parts[1:] {
		s.text = append(append(s.text, now...), part...)
	}
}

// Substitute replaces $name and ${name} with vars[name], and $$ with $. A name is an ASCII letter or underscore,
// followed by letters, digits and underscores. Unknown and malformed placeholders stay unchanged. These are the rules
// of safe_substitute of Python's string.Template, which torchrun applies to worker arguments and line prefixes.
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

// placeholder returns the name, bare or in braces, at the start of s, which is the text after a "$", and its length
// in s including braces. The name is "" if there is none.
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
