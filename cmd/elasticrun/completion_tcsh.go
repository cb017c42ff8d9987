package main

import (
	"cmp"
	_ "embed" // tcsh's completion
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/elasticrun/elasticrun/internal/config"
)

//go:embed completion.tcsh
var tcshCompletion string

// completeTcsh is the first argument that tcsh's completion script gives. The command line up to the cursor is in
// COMMAND_LINE.
const completeTcsh = "__completeTcsh"

// writeTcshCompletions writes the words that may stand at the end of line, one a line. Each replaces the whole last
// word, so the value of --flag=value has the flag before it. tcsh completes no file names beside a command's output, so
// they are here too.
func writeTcshCompletions(w io.Writer, line string) {
	words := strings.Fields(line)
	if len(words) == 0 || strings.TrimRight(line, " \t") != line {
		words = append(words, "")
	}
	c := config.Complete(words[1:])
	lead, last := "", words[len(words)-1]
	if name, value, joined := strings.Cut(last, "="); joined && strings.HasPrefix(name, "-") {
		lead, last = name+"=", value
	}
	for _, word := range c.Words {
		fmt.Fprintln(w, lead+word.Word)
	}
	if c.Files || c.Dirs {
		for _, path := range pathsFrom(last, c.Dirs) {
			fmt.Fprintln(w, lead+path)
		}
	}
}

// pathsFrom returns the paths that begin with begun, folders with a slash at the end. It leaves out names that tcsh
// would split, and hidden files unless begun names one.
func pathsFrom(begun string, onlyDirs bool) []string {
	dir, base := filepath.Split(begun)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || base == "" && name[0] == '.' || strings.ContainsAny(name, " \t\r\n") {
			continue
		}
		switch {
		case e.IsDir():
			paths = append(paths, dir+name+"/")
		case !onlyDirs:
			paths = append(paths, dir+name)
		}
	}
	return paths
}
