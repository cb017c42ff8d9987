package evidence

import (
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

var (
	// aside are lines that are written on the way out whatever the reason: warnings, and the source line that Python shows with one.
	aside = lazily(`Warning\b|warnings\.warn\(|\[[WI]\d{4} |\[[WI] \w+\.cpp`)
	// boxEnd is the lower edge of the box that rich draws around a traceback. The exception comes after it.
	boxEnd = lazily(`^\s*╰─+╯\s*$`)
)

// lastWord returns the line at the end of a stderr that says most of why the worker exited: that of sys.exit(text), of a wrong argument, or of a
// traceback in a form of its own. It is empty where there is none.
func lastWord(stderr []string) string {
	var lines []string
	for _, line := range stderr {
		line = strings.TrimSpace(colours().ReplaceAllString(line, ""))
		if line != "" && !aside().MatchString(line) {
			lines = append(lines, line)
		}
	}
	for i, line := range slices.Backward(lines) {
		if boxEnd().MatchString(line) && i+1 < len(lines) {
			return lines[i+1] // what follows is the rest of a message that was too long for a line
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// abortedBy returns what a worker said of why it aborted: the last such line of its stderr, else of what it had shown of errors of its own; empty
// where it said nothing.
func abortedBy(shown []failure.Finding, stderr []string) string {
	for _, line := range slices.Backward(stderr) {
		if reason, found := abortReason(line); found {
			return reason
		}
	}
	if len(shown) == 0 {
		return ""
	}
	reason, found := abortReason(shown[len(shown)-1].Text)
	if !found {
		reason = shown[len(shown)-1].Text
	}
	return reason
}
