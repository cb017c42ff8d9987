package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// namedCode is a name of a package in backquotes, such as `rdzv.Handler.Stops`.
var namedCode = regexp.MustCompile("`([a-z][a-z0-9]*(?:\\.[A-Z]\\w*)+)`")

// TestAPIPage checks that the names in our column of docs/api.md exist, and that each row names a test or script,
// unless it says that we have none. TestPages checks that these exist.
func TestAPIPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	names, rows := exported(t, os.DirFS("../../pkg")), 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| torch |") {
			if strings.HasPrefix(line, "|") && len(cells) != 6 {
				t.Errorf("docs/api.md: a row with %d cells: %s", len(cells)-2, line)
			}
			continue
		}
		rows++
		for _, m := range namedCode.FindAllStringSubmatch(cells[2]+cells[3], -1) {
			if !names[m[1]] {
				t.Errorf("docs/api.md names %s, which does not exist", m[1])
			}
		}
		none := strings.HasPrefix(strings.TrimSpace(cells[2]), "none")
		if held := cells[4]; !none && !namedTest.MatchString(held) && !namedCase.MatchString(held) {
			t.Errorf("docs/api.md: no test holds %s", line)
		}
		if strings.TrimSpace(cells[3]) == "" {
			t.Errorf("docs/api.md does not say whether this differs: %s", line)
		}
	}
	if rows < 100 {
		t.Errorf("docs/api.md has %d rows", rows)
	}
}

// pythonNames finds the classes, functions and methods of a Python file.
var pythonNames = regexp.MustCompile(`(?m)^(?: {4})?(?:class|def) (\w+)`)

// TestAPIPageIsComplete checks that docs/api.md names every class, function and method of torch's files.
func TestAPIPageIsComplete(t *testing.T) {
	find := exec.CommandContext(t.Context(), testenv.Torch(t, "2.14"), "-c",
		"import importlib.util as u; print(u.find_spec('torch').origin)")
	origin, err := find.Output()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	skipped := regexp.MustCompile(`^(__\w+__|_error)$`) // _error is a local function of each handler
	for section := range strings.SplitSeq(string(page), "\n## torch/") {
		file, rows, _ := strings.Cut(section, "\n")
		if !strings.HasSuffix(file, ".py") {
			continue
		}
		files++
		source, err := os.ReadFile(path.Join(path.Dir(strings.TrimSpace(string(origin))), file))
		if err != nil {
			t.Error(err)
		}
		for _, m := range pythonNames.FindAllStringSubmatch(string(source), -1) {
			if name := regexp.MustCompile(`\b` + m[1] + `\b`); !skipped.MatchString(m[1]) && !name.MatchString(rows) {
				t.Errorf("docs/api.md does not name %s of torch/%s", m[1], file)
			}
		}
	}
	if files != 6 {
		t.Errorf("docs/api.md has %d files of torch, want 6", files)
	}
}

// exported returns the exported names below root: package.Name, and package.Type.Member for fields and methods.
func exported(t *testing.T, root fs.FS) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path.Base(name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			addDeclaration(names, file.Name.Name+".", d)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// addDeclaration adds the names of one declaration of a package.
func addDeclaration(names map[string]bool, prefix string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[prefix+d.Name.Name] = true
			return
		}
		if of := typeName(d.Recv.List[0].Type); of != "" {
			names[prefix+of+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					names[prefix+n.Name] = true
				}
			case *ast.TypeSpec:
				names[prefix+spec.Name.Name] = true
				addMembers(names, prefix+spec.Name.Name+".", spec.Type)
			}
		}
	}
}

// addMembers adds the fields of a struct or the methods of an interface.
func addMembers(names map[string]bool, prefix string, of ast.Expr) {
	var fields *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			names[prefix+n.Name] = true
		}
	}
}

// typeName returns the name of a receiver's type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
