package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// file describes one Go file of the module.
type file struct {
	name     string // slash-separated, from the module's root
	pkg      string // folder of the file
	test     bool
	lines    int
	imports  []string
	exits    []int // lines that call os.Exit
	clocks   []int // lines that read a clock or make a timer
	compiled []int // lines of package variables that compile a regular expression at the program's start
	declared []declared
}

// thisModule reads this module, once for all tests.
var thisModule = sync.OnceValues(func() ([]file, error) { return read(os.DirFS("../..")) })

// repository returns the files of this module.
func repository(t *testing.T) []file {
	t.Helper()
	files, err := thisModule()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d Go files: this is not the module's root", len(files))
	}
	return files
}

// read parses the Go files of one module for every platform, without testdata and modules below it.
func read(module fs.FS) ([]file, error) {
	var files []file
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(module, name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		f, err := parse(module, name)
		files = append(files, f)
		return err
	})
	return files, err
}

// skip returns fs.SkipDir for a folder without packages of the module.
func skip(module fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	if base := path.Base(dir); base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(module, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func parse(module fs.FS, name string) (file, error) {
	f := file{name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
	src, err := fs.ReadFile(module, name)
	if err != nil {
		return f, err
	}
	f.lines = bytes.Count(src, []byte("\n"))
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		return f, fmt.Errorf("parse %s: %w", name, err)
	}
	for _, spec := range tree.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, fmt.Errorf("parse %s: %w", name, err)
		}
		f.imports = append(f.imports, imported)
	}
	line := func(n ast.Node) int { return set.Position(n.Pos()).Line }
	f.declared = declarations(tree, line)
	ast.Inspect(tree, func(n ast.Node) bool {
		if isSelector(n, "os", "Exit") {
			f.exits = append(f.exits, line(n))
		}
		for _, name := range []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"} {
			if isSelector(n, "time", name) {
				f.clocks = append(f.clocks, line(n))
			}
		}
		return true
	})
	for _, d := range tree.Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			if isSelector(n, "regexp", "MustCompile") {
				f.compiled = append(f.compiled, line(n))
			}
			_, function := n.(*ast.FuncDecl)
			_, literal := n.(*ast.FuncLit)
			return !function && !literal
		})
	}
	return f, nil
}

// isSelector reports whether n is name of the package that is imported as pkg.
func isSelector(n ast.Node, pkg, name string) bool {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// report fails the test with one line for each complaint.
func report(t *testing.T, complaints []string) {
	t.Helper()
	slices.Sort(complaints)
	for _, c := range slices.Compact(complaints) {
		t.Error(c)
	}
}
