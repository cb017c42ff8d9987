package procs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// execError says in one line why a program could not be executed, and what to do.
type execError struct {
	problem string
	err     error // the system's own
}

func (e *execError) Error() string { return e.problem }

func (e *execError) Unwrap() error { return e.err }

// explainExec adds to the error of a program that could not be executed where the program was looked for, or what is
// wrong with the file. name is the program as the caller wrote it; path is where it was found, empty for nowhere.
func explainExec(name, path string, err error) error {
	if problem := execProblem(name, path, err); problem != "" {
		return &execError{problem, err}
	}
	return fmt.Errorf("execute %s: %w", name, explainStart(err))
}

// execProblem returns the problem that the error and the file prove; empty for none.
func execProblem(name, path string, err error) string {
	if path == "" {
		path = name
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return NotOnPath(name)
	case errors.Is(err, fs.ErrNotExist):
		return missing(path)
	case errors.Is(err, syscall.EACCES):
		return forbidden(path)
	case errors.Is(err, syscall.EISDIR):
		return path + " is a folder, not a program"
	case errors.Is(err, syscall.ENOEXEC):
		return wrongFormat(path)
	}
	return ""
}

// NotOnPath says where a program, a name without a slash, was looked for, and what to do. It names a file of that name
// that cannot be executed.
func NotOnPath(name string) string {
	var folders []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if dir == "" {
			dir = "."
		}
		if slices.Contains(folders, dir) {
			continue
		}
		folders = append(folders, dir)
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			if why := forbidden(file); why != "" {
				return why
			}
		}
	}
	text := name + " is in no folder of PATH"
	if len(folders) == 0 {
		text = name + " was not looked for, because PATH is empty"
	}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		if info.Mode().Perm()&0o111 == 0 {
			return text + ", and " + forbidden("./"+name)
		}
		return text + "; write ./" + printable.ShellWord(name) + " to run the file in the working directory"
	}
	if len(folders) > 0 {
		text += " (" + strings.Join(folders, ":") + ")"
	}
	return text
}

// missing says what does not exist: the file, the target of a link, or an interpreter or loader that the file needs.
func missing(path string) string {
	if _, err := os.Stat(path); err == nil {
		return missingInterpreter(path)
	}
	if target, err := os.Readlink(path); err == nil {
		return fmt.Sprintf("%s is a link to %s, which does not exist", path, target)
	}
	if dir, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
		return fmt.Sprintf("%s does not exist in the working directory %s", path, dir)
	}
	return path + " does not exist"
}

// missingInterpreter says which interpreter or loader a file needs that does not exist.
func missingInterpreter(path string) string {
	head := fileHead(path)
	if loader := elfLoader(head); loader != "" {
		return fmt.Sprintf("%s needs the loader %s, which does not exist here: it was built for another system", path, loader)
	}
	interpreter, ok := interpreterOf(head)
	switch {
	case !ok:
		return ""
	case strings.HasSuffix(interpreter, "\r"):
		return fmt.Sprintf(`the lines of %s end in CRLF, so its interpreter would be %q: run sed -i 's/\r$//' %s`, path,
			interpreter, printable.ShellWord(path))
	}
	return fmt.Sprintf("%s needs the interpreter %s of its first line, which does not exist", path, interpreter)
}

// forbidden says what keeps this user from executing a file.
func forbidden(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Sprintf("user %d may not enter a folder of the path %s: namei -l %s shows which one", os.Geteuid(), path,
			printable.ShellWord(path))
	case info.IsDir():
		return path + " is a folder, not a program"
	case info.Mode().Perm()&0o111 == 0 && isText(fileHead(path)):
		return path + " has no execute permission, and no first line such as #!/bin/sh"
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Sprintf("%s has no execute permission: run chmod +x %s", path, printable.ShellWord(path))
	case noExec(path):
		return path + " is on a file system that is mounted noexec: copy it to another one"
	case unix.Access(path, unix.X_OK) != nil:
		return fmt.Sprintf("user %d may not execute %s (%v): its owner can change that with chmod", os.Geteuid(), path,
			info.Mode())
	}
	if interpreter, ok := interpreterOf(fileHead(path)); ok {
		return fmt.Sprintf("%s needs the interpreter %s of its first line, which user %d may not execute", path,
			interpreter, os.Geteuid())
	}
	return ""
}

// wrongFormat says why the kernel does not know how to run a file.
func wrongFormat(path string) string {
	head := fileHead(path)
	const bom = "\xef\xbb\xbf"
	_, script := interpreterOf(strings.TrimPrefix(head, bom))
	switch built, here := elfMachine(head), machine(); {
	case built != "" && here != "" && built != here:
		return fmt.Sprintf("%s is a program for %s, and this machine is %s", path, built, here)
	case head == "":
		return path + " is empty"
	case script && strings.HasPrefix(head, bom):
		return fmt.Sprintf(`%s begins with a byte order mark, which hides its first line: run sed -i '1s/^\xEF\xBB\xBF//' %s`,
			path, printable.ShellWord(path))
	case !script && isText(head):
		return path + " is neither a program nor a script: a script's first line is such as #!/bin/sh"
	}
	return ""
}

// isText reports whether a file with this head is text that names no interpreter.
func isText(head string) bool {
	_, script := interpreterOf(head)
	return head != "" && !script && !strings.ContainsRune(head, 0) && !strings.HasPrefix(head, "\x7f")
}

// interpreterOf returns the interpreter that a script names in its first line; false if it names none.
func interpreterOf(head string) (string, bool) {
	line, found := strings.CutPrefix(head, "#!")
	line, _, _ = strings.Cut(line, "\n")
	line = strings.Trim(line, " \t")
	if end := strings.IndexAny(line, " \t"); end >= 0 {
		line = line[:end]
	}
	return line, found && line != ""
}

// fileHead returns the first bytes of a regular file, as many as the kernel needs to recognize it; empty if it cannot
// be read.
func fileHead(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	head, _ := io.ReadAll(io.LimitReader(f, 4<<10))
	return string(head)
}
