package archtest

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// A file holds one mechanism, so its length is bounded. Tests have tables and may be longer.
const (
	maxLines     = 400
	maxTestLines = 600
)

func TestShape(t *testing.T) {
	report(t, checkShape(repository(t)))
}

// checkShape returns a line for each file that is too long, for each call of os.Exit outside cmd, examples and tests,
// and for each regular expression that the program compiles when it starts. os.Exit skips deferred calls, so only main
// packages may call it.
func checkShape(files []file) []string {
	var bad []string
	for _, f := range files {
		limit := maxLines
		if f.test {
			limit = maxTestLines
		}
		if f.lines > limit {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d: split it by mechanism", f.name, f.lines, limit))
		}
		if f.test {
			continue
		}
		for _, line := range f.compiled {
			bad = append(bad, fmt.Sprintf("%s:%d compiles a pattern at each start: use internal/lazyregexp", f.name, line))
		}
		if strings.HasPrefix(f.pkg, "cmd/") || strings.HasPrefix(f.pkg, "examples/") {
			continue
		}
		for _, line := range f.exits {
			bad = append(bad, fmt.Sprintf("%s:%d calls os.Exit: return an error to cmd instead", f.name, line))
		}
	}
	return bad
}

func TestCheckShape(t *testing.T) {
	source := func(lines int, body string) *fstest.MapFile {
		text := "package a\n" + body
		return &fstest.MapFile{Data: []byte(text + strings.Repeat("\n", lines-strings.Count(text, "\n")))}
	}
	exit := "import \"os\"\nfunc F() { os.Exit(1) }\n"
	const patterns = "import \"regexp\"\nvar a = regexp.MustCompile(`a`)\nvar b = func() { regexp.MustCompile(`b`) }\n" +
		"func c() { regexp.MustCompile(`c`) }\n"
	files, err := read(fstest.MapFS{
		"pkg/a/fits.go":           source(400, ""),
		"pkg/a/long.go":           source(401, ""),
		"pkg/a/fits_test.go":      source(600, exit),
		"pkg/a/long_test.go":      source(601, ""),
		"pkg/a/exit_other.go":     source(9, "//go:build !linux\n"+exit),
		"cmd/a/main.go":           source(9, exit),
		"examples/a/main.go":      source(9, exit),
		"pkg/a/testdata/a.go":     source(900, exit),
		"pkg/a/pattern.go":        source(9, patterns),
		"pkg/a/pattern_test.go":   source(9, patterns),
		"internal/tools/go.mod":   {Data: []byte("module tools\n")},
		"internal/tools/tools.go": source(900, exit),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pkg/a/exit_other.go:4 calls os.Exit: return an error to cmd instead",
		"pkg/a/long.go has 401 lines, more than 400: split it by mechanism",
		"pkg/a/long_test.go has 601 lines, more than 600: split it by mechanism",
		"pkg/a/pattern.go:3 compiles a pattern at each start: use internal/lazyregexp",
	}
	if diff := cmp.Diff(want, checkShape(files)); diff != "" {
		t.Errorf("complaints (-want +got):\n%s", diff)
	}
}
