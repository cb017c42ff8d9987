package records

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// moduleHint explains Python's error about a module that it cannot find. It returns "" for other errors.
func (j job) moduleHint(summary string) string {
	pattern := `No module named '?([A-Za-z_][\w.]*)'?(?:; '([\w.]+)' is (not )?a package)?(/)?`
	found := regexp.MustCompile(pattern).FindStringSubmatch(summary)
	if found == nil || found[4] != "" { // with a slash it is a path, which -m does not take
		return ""
	}
	module, parent := found[1], found[2]
	before, child, dotted := strings.Cut(module, ".")
	switch {
	case parent != "" && found[3] == "": // python -m of a package without a module __main__
		return fmt.Sprintf("%s is a package: name the module in it that is to run, as -m %s.MODULE", parent, parent)
	case parent != "":
		return j.hiddenPackage(parent)
	case dotted: // Python has found the package
		return j.oldPackage(before, child)
	}
	if text := j.moduleElsewhere(module); text != "" {
		return text
	}
	text := fmt.Sprintf("%s (%s) has no module %s; ", j.python, from(j.source), module)
	search := interpreter.Search{Python: j.python, Module: module, WorkDir: j.workDir, Env: j.env}
	if !j.module {
		search.Script = j.script
	}
	if other, ok := interpreter.Another(search); ok {
		return text + "another interpreter has it: run " + other.Command() + " ..."
	}
	return text + "install it there, activate the environment that has it, or set PYTHON_EXEC to its python"
}

// from says where an interpreter was found.
func from(source string) string {
	if strings.ToUpper(source) == source { // a variable
		return "from " + source
	}
	return "of " + source
}

// hiddenPackage names the user's file that hides a package of the same name from Python.
func (j job) hiddenPackage(name string) string {
	file := filepath.Join(j.scriptFolder(), name+".py")
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return fmt.Sprintf("%s hides the package %s: rename the file", file, name)
}

// oldPackage names the version of an installed package that lacks a module.
func (j job) oldPackage(name, child string) string {
	installed := interpreter.Inspect(j.python, j.env)
	version := installed.Version(name)
	if version == "" || interpreter.FindModule([]string{j.scriptFolder()}, name) != "" { // the user's own package
		return ""
	}
	return fmt.Sprintf("%s has %s %s, which has no module %s: install the version that the script needs", j.python, name,
		version, child)
}

// moduleElsewhere names a module in the working directory, which Python does not search for a script in another folder.
func (j job) moduleElsewhere(module string) string {
	if j.workDir == "" || j.scriptFolder() == j.workDir {
		return ""
	}
	file := interpreter.FindModule([]string{j.workDir}, module)
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s is there, but Python searches the script's folder, not the working directory: "+
		"run PYTHONPATH=%s elasticrun ...", file, printable.ShellWord(j.workDir))
}
