package interpreter

import (
	"path/filepath"

	"github.com/elasticrun/elasticrun/internal/lookpath"
)

// UnusedEnvironment is an active environment whose interpreter does not run the script.
type UnusedEnvironment struct {
	// Variable is the name of the variable that names the environment. Root is its value, the environment's folder.
	Variable, Root string
	// Err says why its interpreter cannot be used; nil if it can.
	Err error
}

// Unused returns the active environment that the user would expect the run to use, if the interpreter that [Find]
// returned, with this source, is another one. The result is nil if there is none.
func Unused(path, source string, env func(string) (string, bool)) *UnusedEnvironment {
	variable := "VIRTUAL_ENV"
	root, _ := env(variable)
	switch {
	case source == SourceVariable || source == SourceVirtualEnv: // the user chose it
		return nil
	case root == "" && source == SourcePath: // activating a conda environment puts it first on PATH
		variable = "CONDA_PREFIX"
		root, _ = env(variable)
	}
	if root == "" || filepath.Dir(filepath.Dir(path)) == filepath.Clean(root) {
		return nil
	}
	python := filepath.Join(root, "bin", "python")
	if sameInterpreter(python, path) {
		return nil
	}
	u := &UnusedEnvironment{Variable: variable, Root: root}
	if _, err := lookpath.Executable(python); err != nil {
		if variable == "CONDA_PREFIX" { // conda also makes environments without Python
			return nil
		}
		u.Err = whyNot(python, err)
	}
	return u
}
