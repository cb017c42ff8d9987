package stacks

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// Where says in a few words where a worker is, such as "in save, train.py:54": the call of UserFrame, else what the
// kernel says.
func (w Worker) Where() string {
	f, ok := w.UserFrame()
	if !ok {
		return strings.TrimPrefix(doing(w.State, w.Wait), ": ")
	}
	return f.where()
}

func (f Frame) where() string {
	return fmt.Sprintf("in %s, %s:%d", printable.Line(f.Function), printable.Line(filepath.Base(f.File)), f.Line)
}

// isLibrary reports whether a file belongs to Python or to an installed package. Python's own modules are below
// lib/python3.11 or the like, also in virtual environments and in conda's.
func isLibrary(file string) bool {
	if strings.HasPrefix(file, "<frozen ") {
		return true
	}
	parts := strings.Split(file, "/")
	for i, part := range parts[:len(parts)-1] { // without the name of the file
		switch {
		case part == "site-packages", part == "dist-packages":
			return true
		case i > 0 && strings.HasPrefix(parts[i-1], "lib") && isVersioned(part):
			return true
		}
	}
	return false
}

// isVersioned reports whether the name of a folder is "python" with a version.
func isVersioned(name string) bool {
	version, ok := strings.CutPrefix(name, "python")
	return ok && version != "" && version[0] >= '0' && version[0] <= '9'
}
