package release

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A typedCommand is a command of docs/first-hour.md with what it prints.
type typedCommand struct {
	text       string
	background bool // it runs beside the next command, whose output follows
	prints     []string
}

// A firstHour is docs/first-hour.md: a script to save, and commands by the heading they follow.
type firstHour struct {
	script   string
	headings []string
	commands map[string][]typedCommand
}

var (
	pageBlock  = regexp.MustCompile("(?ms)^## (.*?)$|^```(console|python)\n(.*?)^```$")
	typedLine  = regexp.MustCompile(`^(\d?)\$ (.*)$`)
	outputMark = regexp.MustCompile(`(?m)^@@ (\d+)\n`)
)

func readFirstHour(t *testing.T) firstHour {
	t.Helper()
	page := firstHour{commands: make(map[string][]typedCommand)}
	heading := ""
	for _, match := range pageBlock.FindAllStringSubmatch(read(t, "../../docs", "first-hour.md"), -1) {
		switch {
		case match[1] != "":
			heading = match[1]
			page.headings = append(page.headings, heading)
		case match[2] == "python":
			page.script = match[3]
		default:
			page.commands[heading] = append(page.commands[heading], readConsole(t, match[3])...)
		}
	}
	return page
}

// readConsole reads a transcript. The prompt is "$ ", or "1$ " and "2$ " for two terminals.
func readConsole(t *testing.T, text string) []typedCommand {
	t.Helper()
	var commands []typedCommand
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if match := typedLine.FindStringSubmatch(line); match != nil {
			commands = append(commands, typedCommand{text: match[2], background: match[1] == "1"})
			continue
		}
		if len(commands) == 0 {
			t.Fatalf("output before the first command: %q", line)
		}
		last := &commands[len(commands)-1]
		last.prints = append(last.prints, line)
	}
	return commands
}

// pattern returns what the output of a command must match: "…" stands for anything.
func (c typedCommand) pattern() *regexp.Regexp {
	want := regexp.QuoteMeta(strings.Join(c.prints, "\n"))
	return regexp.MustCompile(`(?s)^` + strings.ReplaceAll(want, "…", ".*") + `\n?$`)
}

// TestFirstHourPage checks that a user types at most 300 characters up to the end of the first job.
func TestFirstHourPage(t *testing.T) {
	t.Parallel()
	page := readFirstHour(t)
	for _, install := range page.headings[:2] {
		typed := len(page.script)
		for _, command := range append(page.commands[install], page.commands["The first job"]...) {
			typed += len(command.text) + 1
		}
		if typed > 300 {
			t.Errorf("%s: %d characters to type up to the end of the first job", install, typed)
		}
	}
}

// TestFirstHour types the commands of docs/first-hour.md as a new user, after each of the two ways to install. The
// Debian package and torch are installed into a copy of a Debian 13 root. The wheel is installed into a virtual
// environment on this machine, which has Debian's torch in place of one from PyPI.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	testenv.InSoak(t)
	testenv.Root(t)
	testenv.Torch(t, "1.13")
	page := readFirstHour(t)
	root := filepath.Join(filepath.Dir(filepath.Dir(testenv.Torch(t, "2.6"))), "roots", "trixie")
	for _, way := range []struct{ heading, root, kind, file string }{
		{"Install the Debian package", root, "deb", "*.deb"},
		{"Or install the wheel", "/", "wheel", "*.whl"},
	} {
		t.Run(way.kind, func(t *testing.T) {
			t.Parallel()
			commands := append([]typedCommand(nil), page.commands[way.heading]...)
			for _, heading := range page.headings[2:] {
				commands = append(commands, page.commands[heading]...)
			}
			typeCommands(t, page, way.root, onlyFile(t, makeRelease(t, way.kind), way.file), commands)
		})
	}
}

// offline replaces the commands that need the network.
var offline = strings.NewReplacer(
	"python3 -m venv env", "python3 -m venv --system-site-packages env", "pip install torch ", "pip install --no-index ")

func typeCommands(t *testing.T, page firstHour, root, file string, commands []typedCommand) {
	t.Helper()
	var asRoot, asUser strings.Builder
	fmt.Fprintf(&asUser, "cat >train.py <<'END'\n%sEND\n", page.script)
	for i, command := range commands {
		into, text := &asUser, offline.Replace(command.text)
		if privileged, ok := strings.CutPrefix(text, "sudo "); ok {
			into, text = &asRoot, privileged
		}
		switch {
		case command.background:
			fmt.Fprintf(into, "(%s) >.terminal 2>&1 &\n", text)
		default:
			fmt.Fprintf(into, "echo '@@ %d'\n{ %s; } 2>&1\n", i, text)
		}
		if i > 0 && commands[i-1].background {
			fmt.Fprintf(into, "wait\necho '@@ %d'\ncat .terminal\n", i-1)
		}
	}
	scripts := [2]string{}
	for i, text := range []string{asRoot.String(), asUser.String()} {
		scripts[i] = filepath.Join(t.TempDir(), fmt.Sprint("script", i))
		if err := os.WriteFile(scripts[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := inRoot(t, "first-hour.sh", root, file, scripts[0], scripts[1])
	marks := outputMark.FindAllStringSubmatchIndex(out, -1)
	if len(marks) != len(commands) {
		t.Fatalf("%d of %d commands ran:\n%s", len(marks), len(commands), out)
	}
	for i, mark := range marks {
		end := len(out)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		var number int
		if _, err := fmt.Sscan(out[mark[2]:mark[3]], &number); err != nil {
			t.Fatal(err)
		}
		command, got := commands[number], out[mark[1]:end]
		if !command.pattern().MatchString(got) {
			t.Errorf("$ %s\nwant\n%s\ngot\n%s", command.text, strings.Join(command.prints, "\n"), got)
		}
	}
}
