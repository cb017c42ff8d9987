package records

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// hint returns one line about what to try next after a failure on this node, or "".
func hint(cfg *config.Config, root *report.Failure, env func(string) (string, bool)) string {
	if cfg.NoPython {
		return ""
	}
	crashes := []string{"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"}
	if module := missingModule(root.Summary); module != "" {
		return moduleHint(cfg, module, env)
	}
	if handler, _ := env("PYTHONFAULTHANDLER"); handler == "" && slices.Contains(crashes, root.Signal) {
		return "with PYTHONFAULTHANDLER=1 in the environment Python prints where it crashed"
	}
	return ""
}

// missingModule returns the module of Python's error about one that it does not find, without submodules.
func missingModule(summary string) string {
	found := regexp.MustCompile(`No module named '?([A-Za-z_]\w*)`).FindStringSubmatch(summary)
	if found == nil {
		return ""
	}
	return found[1]
}

// moduleHint names the interpreter that does not have the module, and one that may have it.
func moduleHint(cfg *config.Config, module string, env func(string) (string, bool)) string {
	python, source, err := interpreter.Find(env)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("the interpreter was %s (%s), which has no module %s", python, from(source), module)
	if near := nearestEnvironment(cfg, python); near != "" {
		return text + "; there is another one: PYTHON_EXEC=" + near
	}
	return text + "; PYTHON_EXEC or an active environment chooses another"
}

func from(source string) string {
	if strings.ToUpper(source) == source { // a variable
		return "from " + source
	}
	return "of " + source
}

// ownProgram reports whether path is a program in a folder of this user or of root. Others could have put theirs
// there.
func ownProgram(path string) bool {
	program, err1 := os.Stat(path)
	folder, err2 := os.Stat(filepath.Dir(path))
	if err1 != nil || err2 != nil || !program.Mode().IsRegular() || program.Mode()&0o111 == 0 {
		return false
	}
	owner, ok := folder.Sys().(*syscall.Stat_t)
	return ok && (owner.Uid == 0 || int(owner.Uid) == os.Getuid())
}

// nearestEnvironment returns the interpreter of a virtual environment in the script's folder, the working directory or
// a folder above that, unless it is python.
func nearestEnvironment(cfg *config.Config, python string) string {
	wd, err := os.Getwd()
	if err != nil {
		return ""
	}
	var dirs []string
	if !cfg.Module {
		dirs = append(dirs, filepath.Dir(filepath.Join(wd, cfg.Script)))
		if filepath.IsAbs(cfg.Script) {
			dirs[0] = filepath.Dir(cfg.Script)
		}
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, dir := range dirs {
		for _, name := range []string{".venv", "venv"} {
			path := filepath.Join(dir, name, "bin", "python")
			if path != python && ownProgram(path) {
				return path
			}
		}
	}
	return ""
}
