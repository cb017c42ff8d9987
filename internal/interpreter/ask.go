package interpreter

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/oneshot"
)

// Question says what [Ask] asks an interpreter.
type Question struct {
	// Env is the environment of the interpreter.
	Env []string
	// Torch says that torch is imported, which takes seconds.
	Torch bool
	// Limit bounds the time that the interpreter may take.
	Limit time.Duration
}

// Answer is what an interpreter said.
type Answer struct {
	// Executable is sys.executable: another program than the one that was started, if that is a script.
	Executable string
	// Python is the version; empty if the program did not answer as Python does.
	Python string
	// SameFiles says that the interpreter sees the files that this process sees. It is false for a script that starts
	// Python in a container; then Folders is empty.
	SameFiles bool
	// Folders is where the interpreter finds modules. Certain says that a module which is not in Folders cannot be
	// imported.
	Folders []string
	Certain bool
	// Torch is nil if it was not asked for, and if the interpreter ended or was killed while it imported torch.
	Torch *Torch
	// Took is the time from the start of the interpreter to its end.
	Took time.Duration
}

// Torch is the torch of an interpreter.
type Torch struct {
	// Version is empty if torch cannot be imported.
	Version string
	// Device is what the build is for, such as "CUDA 12.8", or "CPUs".
	Device string
	// Missing says that there is no torch. Problem is the error of the import, if it failed in another way.
	Missing bool
	Problem string
}

//go:embed ask.py
var question string

// Ask starts the interpreter at path and returns its answer. err is one line that says why the interpreter did not exit
// with 0; the answer then has what it had printed before. When Ask returns, everything that the interpreter started has
// ended or was killed.
//
// Nothing of a folder that the user did not name is executed: modules are not searched in the working directory, beside
// the script, or where an empty entry of PYTHONPATH would mean one of them.
func Ask(ctx context.Context, path string, q Question) (Answer, error) {
	var out output
	var errs oneshot.Tail
	args := []string{path, "-c", question}
	if q.Torch {
		args = append(args, "torch")
	}
	c := oneshot.Command{
		Argv: args, Env: askEnvironment(q.Env), Dir: "/", Stdout: &out, Stderr: &errs, Limit: q.Limit, Alone: true,
	}
	if isScript(path) { // version managers choose the interpreter by the working directory, and import nothing from it
		c.Dir = ""
	}
	began := time.Now()
	err := c.Run(ctx)
	answer := parseAnswer(out.String())
	answer.Took = time.Since(began)
	if last := errs.LastLine(); err != nil && last != "" {
		err = fmt.Errorf("%w (%s)", err, last)
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok { // it was not started
		err = e.Err
		if first := shebang(path); first != "" && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("its first line names %s: %w; make the environment again", first, err)
		}
	}
	return answer, err
}

// output keeps the start and the end of what an interpreter writes: the first answer is near the start, and the one
// about torch at the end. A program that is no interpreter may write without end.
type output struct {
	start oneshot.Head
	rest  oneshot.Tail
}

// Write implements [io.Writer].
func (o *output) Write(p []byte) (int, error) {
	_, _ = o.rest.Write(p[o.start.Keep(p):]) // it does not fail
	return len(p), nil
}

// String returns what is kept.
func (o *output) String() string { return o.start.String() + o.rest.String() }

// shebang returns the program that the first line of a script names, or "".
func shebang(path string) string {
	line, isScript := strings.CutPrefix(firstBytes(path, 256), "#!")
	line, _, _ = strings.Cut(line, "\n")
	if words := strings.Fields(line); isScript && len(words) > 0 {
		return words[0]
	}
	return ""
}

// askEnvironment returns the environment with which Python searches no module in the working directory, and changes no
// file. Python before 3.11 ignores PYTHONSAFEPATH; there the program itself removes the folder before it imports
// anything.
func askEnvironment(env []string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "PYTHONPATH" || name == "PYTHONINSPECT" || name == "PYTHONSAFEPATH"
	})
	kept = append(kept, "PYTHONSAFEPATH=1", "PYTHONDONTWRITEBYTECODE=1")
	lookup := func(name string) (string, bool) {
		for _, kv := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
	if dirs := pythonPath(lookup); dirs != nil {
		kept = append(kept, "PYTHONPATH="+strings.Join(dirs, string(filepath.ListSeparator)))
	}
	return kept
}

// answerMark begins each part of the answer, so that the output of imported modules is not taken for one. ask.py has
// the mark too.
const answerMark = "\x01elasticrun\x00"

// parseAnswer reads what ask.py printed. A field ends with a NUL.
func parseAnswer(out string) (a Answer) {
	for _, part := range strings.Split(out, answerMark)[1:] {
		part, _, _ = strings.Cut(part, "\x00\n")
		switch f := strings.Split(part, "\x00"); {
		case f[0] == "python" && len(f) >= 6:
			a.Python, a.Executable = f[1], f[2]
			if a.SameFiles = identity(f[4]) == f[5]; !a.SameFiles {
				continue
			}
			for _, dir := range f[6:] {
				if isDir(dir) {
					a.Folders = append(a.Folders, dir)
				}
			}
			a.Certain = f[3] == "certain" && !slices.ContainsFunc(f[6:], isFile)
		case f[0] == "torch" && len(f) == 3:
			a.Torch = &Torch{Version: f[1], Device: f[2]}
		case f[0] == "missing":
			a.Torch = &Torch{Missing: true}
		case f[0] == "problem" && len(f) == 2:
			a.Torch = &Torch{Problem: strings.ToValidUTF8(f[1], "?")}
		}
	}
	return a
}

// identity returns the device and the inode of a file, as ask.py does; "" if there is no file.
func identity(file string) string {
	var st unix.Stat_t
	if unix.Stat(file, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// Installation returns the answer in the form of [Inspect].
func (a Answer) Installation(path string) Installation {
	return Installation{Path: path, Python: a.Python, Folders: a.Folders, Certain: a.Certain}
}
