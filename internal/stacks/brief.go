package stacks

import (
	"fmt"
	"strings"
)

// minBrief is the fewest lines of a group in a brief text: its workers, two calls, and how many lines were left out.
const minBrief = 4

// Brief is [Text] in at most limit lines, which must be at least 2*minBrief. It leaves out outer calls, and then the
// smallest groups.
func Brief(groups []Group, allThreads bool, limit int) string {
	whole := Text(groups, allThreads)
	switch {
	case strings.Count(whole, "\n") <= limit:
		return whole
	case len(groups) == 1:
		return firstLines(whole, limit)
	}
	shown := min(len(groups), (limit-1)/minBrief)
	each := (limit - 1) / shown // with the blank line before the next group
	var b strings.Builder
	for i, g := range groups[:shown] {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(firstLines(Text([]Group{g}, false), each-1))
	}
	if left := len(groups) - shown; left > 0 {
		fmt.Fprintf(&b, "... and %d more with other stacks\n", left)
	}
	return b.String()
}

// firstLines returns a text of at most limit lines. The last one says how many lines it left out.
func firstLines(text string, limit int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) <= limit {
		return text
	}
	return strings.Join(lines[:limit-1], "") + fmt.Sprintf("    ... %d more lines ...\n", len(lines)-limit+1)
}
