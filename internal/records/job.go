package records

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/lookpath"
)

// job describes what this node runs, and where. Hints follow from it.
type job struct {
	// python is the interpreter, source where the launcher found it. Both are empty for a program, and if there is none.
	python, source string
	// script is the absolute path of the script or program, -m and the module, or - for stdin; empty if it is not found.
	script string
	module bool
	// pythonProgram says that --no-python was given for a Python file. The file need not be executable, or on PATH.
	pythonProgram bool
	workDir       string // absolute; empty if unknown
	env           func(string) (string, bool)
}

// jobOf looks for the interpreter and the script of cfg as the launch does.
func jobOf(cfg *config.Config, env func(string) (string, bool)) job {
	j := job{module: cfg.Module, env: env}
	j.workDir, _ = os.Getwd() // fails if the folder is gone
	if !cfg.NoPython {
		j.python, j.source, _ = interpreter.Find(env) // without one the launch has ended with that error
	}
	switch {
	case cfg.Module:
		j.script = "-m " + cfg.Script
	case cfg.Script == "-" && !cfg.NoPython:
		j.script = cfg.Script
	case cfg.NoPython && !strings.ContainsRune(cfg.Script, filepath.Separator):
		j.script, _ = lookpath.Program(env, cfg.Script)
	default:
		j.script = j.abs(cfg.Script)
	}
	if cfg.NoPython && strings.HasSuffix(cfg.Script, ".py") {
		_, err := os.Stat(cfg.Script)
		j.pythonProgram = err == nil
	}
	return j
}

// abs returns the absolute path of a file as the workers see it.
func (j job) abs(path string) string {
	if filepath.IsAbs(path) || j.workDir == "" {
		return path
	}
	return filepath.Join(j.workDir, path)
}

// scriptFolder returns the folder that Python searches for modules first; empty if unknown.
func (j job) scriptFolder() string {
	if j.module || !filepath.IsAbs(j.script) {
		return j.workDir
	}
	return filepath.Dir(j.script)
}

// get returns a variable of the environment; empty if it is not set.
func (j job) get(name string) string {
	value, _ := j.env(name)
	return value
}
