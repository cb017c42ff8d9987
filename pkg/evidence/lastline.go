package evidence

import (
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/pkg/failure"
)

var (
	// noise matches last lines that say nothing about the reason: warnings, with the source line that Python adds, and the
	// general advice of env after its error.
	noise = lazyregexp.New(`Warning\b|warnings\.warn\(|\[[WI]\d{4} |\[[WI] \w+\.cpp|env: use -\[v\]S to pass options`)
	// boxEnd matches the lower edge of the box that the library rich draws around a traceback. The exception follows it.
	boxEnd = lazyregexp.New(`^\s*╰─+╯\s*$`)
	// syntaxError matches how Python ends its message about a script that it cannot parse, which has no traceback.
	syntaxError = lazyregexp.New(`^(\[rank\d+\]: )?(SyntaxError|IndentationError|TabError): `)
	// pythonError matches an exception of Python whose traceback the scanner did not recognize.
	pythonError = lazyregexp.New(`^(\[rank\d+\]: )?[A-Za-z_][\w.]*(Error|Exception)(: |$)`)
	// rankPrefix matches what torch's excepthook puts before each line.
	rankPrefix = lazyregexp.New(`^\[rank\d+\]: `)
	// plainError matches messages that need no exit code to explain them: of the interpreter, or about wrong usage.
	plainError = lazyregexp.New(`^\S*python[\w.]*: (No module named|can't |Error while )|^\S+: error: |` +
		`^(?i:fatal|error): `)
	// notRun matches how a shell, or env, reports a command that it could not execute.
	notRun = lazyregexp.New(`(?i): (command )?not found$|` +
		`: (No such file or directory|Permission denied|Exec format error)$|` +
		`: (cannot execute|error while loading shared libraries): `)
)

// withLastLine completes f, for a worker that exited with a code of its own, with the line of its stderr that best
// explains why. A line that explains itself is the whole reason. Any other line may be unrelated, so the text says that
// it is the last line.
func withLastLine(f failure.Finding, stderr []string) failure.Finding {
	line, exited := lastLine(stderr), f.Kind == failure.Exited
	switch {
	case line == "":
	case exited && pythonError().MatchString(line):
		f.Text = tidy(line)
		if kind, ok := (exception{text: rankPrefix().ReplaceAllString(line, "")}).kind(); ok {
			f.Kind = kind
		}
	case exited && plainError().MatchString(line), !exited && notRun().MatchString(line):
		f.Text = tidy(line)
	default:
		rest := " (its last line on stderr; " + f.Text + ")"
		f.Text = shorten(line, maxText-len(rest)) + rest
	}
	return f
}

// lastLine returns the line at the end of a stderr that best explains why the worker exited: the text of sys.exit, a
// usage error, or the exception of a traceback in a custom form. It is empty if there is none.
func lastLine(stderr []string) string {
	var lines []string
	for _, line := range stderr {
		line = strings.TrimSpace(colors().ReplaceAllString(line, ""))
		if line != "" && !noise().MatchString(line) {
			lines = append(lines, line)
		}
	}
	for i, line := range slices.Backward(lines) {
		above := lines[max(0, i-3):i]
		if syntaxError().MatchString(line) && slices.ContainsFunc(above, namesFile) {
			return line
		}
		if boxEnd().MatchString(line) && i+1 < len(lines) {
			return lines[i+1] // the lines after it continue a long message
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// namesFile reports whether a line of Python's output names a source file.
func namesFile(line string) bool { return strings.Contains(line, `File "`) }

// abortedBy returns the reason that a worker wrote before it aborted: the last such line of its stderr, else of its own
// errors. It is empty if there is none. A line that names no fault counts only if there is nothing else.
func abortedBy(shown []failure.Finding, stderr []string) string {
	vague := ""
	for _, line := range slices.Backward(stderr) {
		reason, found := abortReason(line)
		switch {
		case found && namesNoFault(reason):
			vague = reason
		case found:
			return reason
		}
	}
	if len(shown) == 0 {
		return vague
	}
	reason, found := abortReason(shown[len(shown)-1].Text)
	if !found {
		reason = shown[len(shown)-1].Text
	}
	return reason
}

// namesNoFault reports whether the reason for an abort explains nothing: C++ ended the process without an exception.
// Usually Python was ending while a thread of gloo still held a tensor, because the script had not called
// destroy_process_group (pytorch#190489). That can happen at any end of a worker, even a victim's.
func namesNoFault(reason string) bool { return strings.HasPrefix(reason, "terminate called without ") }
