package workerlog

import (
	"strconv"
	"strings"
	"time"
)

// PrefixTemplateEnv names the environment variable that torchrun reads a line
// prefix template from.
const PrefixTemplateEnv = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

const defaultPrefixTemplate = "[${role_name}${local_rank}]:"

// PrefixVars are the values that a line prefix template can name. ${time} is the
// time of day at which a line goes out.
type PrefixVars struct {
	Role      string // ${role_name}
	LocalRank int    // ${local_rank}
	Rank      int    // ${rank}, the global rank
	NodeRank  int    // ${node_rank}
	Hostname  string // ${hostname}
	Stream    string // ${stream}; empty leaves it as it is, for a console that shows the streams apart
}

// Prefix is what lines start with: text, with the time of day between its parts.
// Nil is no prefix, one part one without a time.
type Prefix []string

// timeOfDay is the form of ${time}, local time. What it makes has the same length.
const timeOfDay = "15:04:05.000"

// LinePrefix returns what a teed line starts with on the console. An empty
// template is torchrun's default, "[${role_name}${local_rank}]:".
func LinePrefix(template string, v PrefixVars) Prefix {
	if template == "" {
		template = defaultPrefixTemplate
	}
	const timeHere = "\x00" // in no variable, argument or host name
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

// At returns the prefix of a line that goes out at t.
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

// stamp puts the time of now into text, whose length stays.
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
