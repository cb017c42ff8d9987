package interpreter

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// Presence says whether an interpreter has a module. The zero value is Unknown.
type Presence int

// The values of Presence.
const (
	Unknown Presence = iota
	Present
	Absent
)

// String returns a word for p.
func (p Presence) String() string {
	return [...]string{"unknown", "present", "absent"}[p]
}

// Has reports whether the interpreter can import the module, by files alone. module is a name such as torch or
// torch.distributed. A module that is compiled into the interpreter itself, such as sys, counts as absent.
func (in Installation) Has(module string) Presence { return in.has(in.Folders, module) }

// Runs reports whether python -m can run the module: a package needs a module __main__. first is the folder that the
// interpreter searches before in.Folders: the working directory.
func (in Installation) Runs(module, first string) Presence {
	folders := append([]string{first}, in.Folders...)
	if isDir(FindModule(folders, module)) {
		module += ".__main__"
	}
	return in.has(folders, module)
}

func (in Installation) has(folders []string, module string) Presence {
	top, _, dotted := strings.Cut(module, ".")
	switch {
	case FindModule(folders, module) != "":
		return Present
	case in.Certain && (!dotted || FindModule(folders, top) == ""):
		return Absent
	default: // the code of a package can add modules to it
		return Unknown
	}
}

// FindModule returns the file of a module, or the folder of a package, in the first folder that has it; "" if none
// has it.
func FindModule(folders []string, module string) string {
	name, rest, dotted := strings.Cut(module, ".")
	if !identifier().MatchString(name) {
		return ""
	}
	var namespaces []string // folders without __init__.py, which count only if there is nothing better
	for _, dir := range folders {
		path := filepath.Join(dir, name)
		switch {
		case hasInit(path):
			if dotted {
				return FindModule([]string{path}, rest)
			}
			return path
		case moduleFile(dir, name) != "":
			if dotted {
				return ""
			}
			return moduleFile(dir, name)
		case isNamespace(path):
			namespaces = append(namespaces, path)
		}
	}
	switch {
	case len(namespaces) == 0:
		return ""
	case dotted:
		return FindModule(namespaces, rest)
	}
	return namespaces[0]
}

var identifier = lazyregexp.New(`^[\pL_][\pL\pN_]*$`)

func hasInit(dir string) bool {
	return isDir(dir) && moduleFile(dir, "__init__") != ""
}

// moduleFile returns the file of a module in dir, or "".
func moduleFile(dir, name string) string {
	for _, suffix := range []string{".py", ".pyc", ".so", ".abi3.so"} {
		if file := filepath.Join(dir, name+suffix); isFile(file) {
			return file
		}
	}
	found, _ := filepath.Glob(filepath.Join(globQuote(dir), name+".cpython-*.so"))
	if len(found) > 0 {
		return found[0]
	}
	return ""
}

// globQuote returns a pattern for filepath.Glob that matches path alone.
func globQuote(path string) string {
	return regexp.MustCompile(`[*?\[\\]`).ReplaceAllString(path, `\$0`)
}

// isNamespace reports whether a folder without __init__.py has something to import. Removing a package leaves
// __pycache__ behind.
func isNamespace(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.IsDir() && identifier().MatchString(e.Name()) && e.Name() != "__pycache__" ||
			strings.HasSuffix(e.Name(), ".py") || strings.HasSuffix(e.Name(), ".so")
	})
}

// Version returns the version of an installed distribution, such as torch, from its metadata; "" if it is not known.
// name is in lower case.
func (in Installation) Version(name string) string {
	for _, dir := range in.Folders {
		entries, _ := os.ReadDir(dir) // an unreadable folder has no distributions
		for _, e := range entries {
			stem, version, ok := strings.Cut(e.Name(), "-")
			if !ok || normalized(stem) != normalized(name) {
				continue
			}
			for suffix, file := range map[string]string{".dist-info": "METADATA", ".egg-info": "PKG-INFO"} {
				if !strings.HasSuffix(version, suffix) {
					continue
				}
				if v := header(filepath.Join(dir, e.Name(), file), "Version"); v != "" {
					return v
				}
			}
		}
	}
	return ""
}

// normalized returns the name of a distribution in the form that PEP 503 compares, but does not shorten "--" to "-".
func normalized(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}

// header returns the value of a header of a metadata file, or "".
func header(file, name string) string {
	for line := range strings.Lines(firstBytes(file, 16<<10)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
		if strings.TrimSpace(line) == "" { // the end of the headers
			break
		}
	}
	return ""
}
