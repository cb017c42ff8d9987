package workerspec

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// missingScript returns advice for a user who named a script that does not exist, or "". args are the arguments after
// the script.
func missingScript(script string, args []string) string {
	bare := !strings.Contains(script, "/")
	switch {
	case bare && isInterpreter(script) && len(args) > 0 && args[0] == "-m":
		return "elasticrun starts Python itself: leave " + script + " out"
	case bare && isInterpreter(script):
		return "elasticrun starts Python itself: leave " + script + " out, or set PYTHON_EXEC=" + script
	case bare && slices.Contains([]string{"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec"}, script):
		return "elasticrun takes the place of " + script + ": leave it out"
	case bare && isModule(script):
		return "to run the module write -m " + script
	}
	if bare && !strings.Contains(script, ".") {
		if near := config.NearestCommand(script); strings.HasSuffix(near, "?") {
			return near
		}
		if path, err := exec.LookPath(script); err == nil {
			return "to run the program " + path + " write --no-python " + script
		}
	}
	dir, name := filepath.Split(script)
	if near := nearest.Of(strings.TrimSuffix(name, ".py"), scriptsIn(cmp.Or(dir, "."))); near != "" {
		return "did you mean " + fmt.Sprintf("%q?", dir+near+".py")
	}
	return ""
}

// isInterpreter recognizes python, python3 and python3.12.
func isInterpreter(name string) bool {
	version, ok := strings.CutPrefix(name, "python")
	return ok && strings.Trim(version, "0123456789.") == ""
}

// isModule reports whether the working directory has the dotted name as a module or a package.
func isModule(name string) bool {
	if name == "" || strings.HasPrefix(name, ".") {
		return false
	}
	path := strings.ReplaceAll(name, ".", "/")
	for _, file := range []string{path + ".py", path + "/__main__.py"} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && file != name+".py" {
			return true
		}
	}
	return false
}

// scriptsIn returns the names of the Python files in a folder, without .py. It reads at most 1000 entries.
func scriptsIn(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(1000) // without names there is no advice
	var scripts []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		if script, ok := strings.CutSuffix(name, ".py"); ok {
			scripts = append(scripts, script)
		}
	}
	return scripts
}

// ScriptDoubt returns a warning about a script that the command line probably runs in the wrong way, or "".
func ScriptDoubt(cfg *config.Config) string {
	where := fmt.Sprintf("script %q", cfg.Script)
	switch {
	case cfg.Module:
		return pathAsModule(cfg.Script)
	case cfg.Script == "-":
		return ""
	case cfg.NoPython && strings.Contains(cfg.Script, "/"):
		return ""
	case cfg.NoPython:
		if _, err := exec.LookPath(cfg.Script); err == nil {
			return ""
		}
		switch _, err := os.Stat(cfg.Script); {
		case err != nil:
			return ""
		case strings.HasSuffix(cfg.Script, ".py"):
			return where + ": not a program on PATH; " + config.LeaveNoPythonOut
		}
		return procs.NotOnPath(cfg.Script)
	}
	switch what := notPython(cfg.Script); what {
	case "":
		return ""
	case noMain:
		return where + ": " + what + ", which Python cannot run; -m runs a module in it"
	default:
		return where + ": " + what + ", which Python cannot run; --no-python runs it as a program"
	}
}

// pathAsModule returns a warning if the name of the module is a path, or "".
func pathAsModule(name string) string {
	info, err := os.Stat(name)
	isFile := err == nil && info.Mode().IsRegular()
	if !strings.Contains(name, "/") && !isFile {
		return ""
	}
	var ways []string
	base := strings.TrimSuffix(filepath.Clean(name), ".py")
	if _, err := os.Stat(base + ".py"); err == nil && !strings.HasPrefix(base, "/") && !strings.Contains(base, ".") {
		ways = append(ways, "write -m "+strings.ReplaceAll(base, "/", "."))
	}
	if isFile {
		ways = append(ways, "leave -m out to run the file")
	}
	text := fmt.Sprintf("module %q: a path, and -m takes the name of a module", name)
	if len(ways) > 0 {
		text += "; " + strings.Join(ways, ", or ")
	}
	return text
}

const noMain = "a folder without __main__.py"

// notPython says what a file is if it is certainly no Python script. Otherwise it returns "".
func notPython(path string) string {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		if _, err := os.Stat(filepath.Join(path, "__main__.py")); errors.Is(err, fs.ErrNotExist) {
			return noMain
		}
		return ""
	case err != nil || !info.Mode().IsRegular(): // opening a FIFO would take data away from Python
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 64)
	n, _ := f.Read(head) // an empty file is a Python script
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	interpreter, isScript := strings.CutPrefix(line, "#!")
	fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(interpreter), "/usr/bin/env "))
	switch {
	case strings.HasPrefix(line, "\x7fELF"):
		return "a compiled program"
	case isScript && len(fields) > 0 && isShell(filepath.Base(fields[0])) && !strings.HasSuffix(path, ".py"):
		return "a shell script"
	}
	return ""
}

func isShell(name string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh"}, name)
}
