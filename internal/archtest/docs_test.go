package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	code       = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`") // F[T](x) in Go looks like a link
	link       = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	namedTest  = regexp.MustCompile(`\b(?:Test|Example)[A-Z]\w*`)
	namedCase  = regexp.MustCompile(`\b\w+\.txtar\b`)
	goTestFunc = regexp.MustCompile(`^func ((?:Test|Example)[A-Z]\w*)\(`)
)

// TestPages checks that the files, tests and scripts that the pages name exist.
func TestPages(t *testing.T) {
	root := os.DirFS("../..")
	tests := testsOf(t, root)
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("found %v: %v", pages, err)
	}
	designs, err := fs.Glob(root, "docs/design/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, designs...)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") {
		data, err := fs.ReadFile(root, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(data), ""), -1) {
			if _, err := fs.Stat(root, path.Join(path.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
		for _, name := range namedTest.FindAllString(string(data), -1) {
			if !slices.Contains(tests, name) {
				t.Errorf("%s names %s, which is no test", page, name)
			}
		}
		for _, name := range namedCase.FindAllString(string(data), -1) {
			if _, err := fs.Stat(root, "testdata/script/"+name); err != nil {
				t.Errorf("%s names %s: %v", page, name, err)
			}
		}
	}
}

// testsOf returns the names of all tests below root.
func testsOf(t *testing.T, root fs.FS) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(filepath.Base(name), "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		data, err := fs.ReadFile(root, name)
		for line := range strings.Lines(string(data)) {
			if m := goTestFunc.FindStringSubmatch(line); m != nil {
				names = append(names, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPackagePagesNameFiles checks that the files that a doc.go names are in its package, or are named with their path.
func TestPackagePagesNameFiles(t *testing.T) {
	names := regexp.MustCompile(`[\w/*]+\.go\b`)
	root := os.DirFS("../..")
	for _, f := range repository(t) {
		if path.Base(f.name) != "doc.go" {
			continue
		}
		text, err := fs.ReadFile(root, f.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.FindAllString(string(text), -1) {
			found, err := fs.Glob(root, path.Join(f.pkg, name))
			for _, suffix := range []string{"_linux.go", "_unix.go"} {
				if len(found) == 0 && err == nil {
					found, err = fs.Glob(root, path.Join(f.pkg, strings.TrimSuffix(name, ".go")+suffix))
				}
			}
			if len(found) == 0 && err == nil {
				found, err = fs.Glob(root, name)
			}
			if err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there (%v)", f.name, name, err)
			}
		}
	}
}
