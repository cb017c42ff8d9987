package interpreter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/lookpath"
	"github.com/elasticrun/elasticrun/internal/printable"
)

// Search says which other interpreter [Another] looks for.
type Search struct {
	// Python is the interpreter of the run, which lacks Module.
	Python, Module string
	// WorkDir is the absolute path of the working directory, Script the script; empty with -m.
	WorkDir, Script string
	Env             func(string) (string, bool)
}

// Suggestion is an interpreter that the user may mean.
type Suggestion struct {
	// Path is the interpreter.
	Path string
	// UV says that uv manages its environment for the project in the working directory.
	UV bool
}

// Command returns the start of a command line that uses the suggested interpreter.
func (s Suggestion) Command() string {
	if s.UV {
		return "uv run elasticrun"
	}
	return "PYTHON_EXEC=" + printable.ShellWord(s.Path) + " elasticrun"
}

// Another returns the nearest interpreter besides s.Python whose files have s.Module; false if there is none. It looks
// in the active environment, in .venv and venv beside the script, in the working directory and in the parents of both
// up to the root of the repository, and in all folders of PATH. It executes nothing. It skips interpreters that another
// user could have put there.
func Another(s Search) (Suggestion, bool) {
	for _, path := range s.candidates() {
		if sameInterpreter(path, s.Python) || !ownProgram(path) || Inspect(path, s.Env).Has(s.Module) != Present {
			continue
		}
		return Suggestion{Path: path, UV: s.ofUV(path)}, true
	}
	return Suggestion{}, false
}

// ofUV reports whether uv run elasticrun would use the interpreter. Its environment must be that of the project in the
// working directory, and nothing may precede VIRTUAL_ENV, which uv sets, in the order of [Find].
func (s Search) ofUV(path string) bool {
	venv := filepath.Dir(filepath.Dir(path))
	project := filepath.Dir(venv)
	if filepath.Base(venv) != ".venv" || !isFile(filepath.Join(project, "uv.lock")) || !isWithin(s.WorkDir, project) {
		return false
	}
	_, source, _ := Find(s.Env) // without an interpreter the source is empty
	return source != SourceVariable && source != SourceProgram
}

func (s Search) candidates() (paths []string) {
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root, _ := s.Env(name); filepath.IsAbs(root) {
			paths = append(paths, filepath.Join(root, "bin", "python"))
		}
	}
	dirs := upToRepository(s.WorkDir)
	if s.Script != "" {
		script := s.Script
		if !filepath.IsAbs(script) {
			script = filepath.Join(s.WorkDir, script)
		}
		dirs = append(upToRepository(filepath.Dir(script)), dirs...)
	}
	for _, dir := range dirs {
		for _, name := range []string{".venv", "venv"} {
			paths = append(paths, filepath.Join(dir, name, "bin", "python"))
		}
	}
	for _, name := range []string{"python3", "python"} {
		paths = slices.AppendSeq(paths, lookpath.All(s.Env, name))
	}
	return paths
}

// upToRepository returns dir and its parents up to the root of the repository that it is in. Outside of a repository it
// returns dir alone.
func upToRepository(dir string) []string {
	var dirs []string
	for at := dir; ; at = filepath.Dir(at) {
		dirs = append(dirs, at)
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return dirs
		}
		if at == filepath.Dir(at) {
			return dirs[:1]
		}
	}
}

// isWithin reports whether the folder dir is root or below it.
func isWithin(dir, root string) bool {
	rel, err := filepath.Rel(root, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// sameInterpreter reports whether two paths lead to the same program in the same folder. The environments of two
// projects may have links to one program, but they are in different folders.
func sameInterpreter(a, b string) bool {
	fileA, err1 := os.Stat(a)
	fileB, err2 := os.Stat(b)
	dirA, err3 := os.Stat(filepath.Dir(a))
	dirB, err4 := os.Stat(filepath.Dir(b))
	return err1 == nil && err2 == nil && err3 == nil && err4 == nil && os.SameFile(fileA, fileB) && os.SameFile(dirA, dirB)
}

// ownProgram reports whether path is a program in a folder of this user or of root. In any other folder another user
// could have put it there.
func ownProgram(path string) bool {
	program, err1 := os.Stat(path)
	folder, err2 := os.Stat(filepath.Dir(path))
	if err1 != nil || err2 != nil || !program.Mode().IsRegular() || program.Mode()&0o111 == 0 {
		return false
	}
	owner, ok := folder.Sys().(*syscall.Stat_t)
	return ok && (owner.Uid == 0 || int(owner.Uid) == os.Getuid())
}
