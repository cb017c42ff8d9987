package interpreter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// Installation is what the files of an interpreter show about it.
type Installation struct {
	// Path is the interpreter as it was found. Its links are not resolved.
	Path string
	// Environment is the root of the virtual environment, or of the conda environment; empty for any other interpreter.
	Environment string
	// Conda says that Environment was made by conda.
	Conda bool
	// Python is the version, with as many parts as the files show: "3.11" or "3.11.7"; empty if unknown.
	Python string
	// Folders is where the interpreter finds modules, in its order. A worker also finds those beside its script, or, with
	// -m, those in its working directory.
	Folders []string
	// Certain says that a module which is not in Folders cannot be imported. It is false for an interpreter that is a
	// script, such as those of pyenv, and where the environment or a file of the interpreter adds modules from elsewhere.
	Certain bool
}

// Inspect reads the files of the interpreter at path, an absolute path.
func Inspect(path string, env func(string) (string, bool)) Installation {
	in := Installation{Path: path}
	program, err := filepath.EvalSymlinks(path)
	if err != nil || isScript(program) {
		return in
	}
	in.Certain = true
	if home, _ := env("PYTHONHOME"); home != "" {
		in.Certain = false
	}
	in.add(pythonPath(env)...)
	venv, cfg := readVenv(path)
	in.Environment, in.Python = venv, cfg.version
	if venv == "" {
		if prefix := filepath.Dir(filepath.Dir(path)); isDir(filepath.Join(prefix, "conda-meta")) {
			in.Environment, in.Conda = prefix, true
		}
	}
	prefix, minor := findPrefix(program, cfg)
	if minor == "" {
		in.Certain = false
		return in
	}
	if in.Python == "" {
		in.Python = strings.TrimSuffix(minor, "t")
		if in.Conda {
			in.Python = condaVersion(prefix, in.Python)
		}
	}
	in.addStandardLibrary(prefix, minor)
	if venv != "" {
		in.addSites(venv, minor)
	}
	if cfg.extends != "" {
		in.addSites(cfg.extends, minor)
	}
	if venv == "" || cfg.systemSites {
		in.addSite(userSite(env, minor))
		in.addSites(prefix, minor)
	}
	return in
}

// isScript reports whether the file begins with #!. Version managers put scripts in place of interpreters.
func isScript(file string) bool {
	return firstBytes(file, 2) == "#!"
}

// firstBytes returns up to n bytes from the start of a regular file. It opens no other file: opening a FIFO would wait.
func firstBytes(file string, n int64) string {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, n)
	n2, _ := f.Read(head) // a file that cannot be read counts as empty
	return string(head[:n2])
}

// pythonPath returns the folders in PYTHONPATH. It leaves out empty entries. To Python such an entry is the working
// directory, but nobody writes it on purpose.
func pythonPath(env func(string) (string, bool)) (dirs []string) {
	list, _ := env("PYTHONPATH")
	for _, dir := range filepath.SplitList(list) {
		if abs, err := filepath.Abs(dir); err == nil && dir != "" {
			dirs = append(dirs, abs)
		}
	}
	return dirs
}

// venvConfig has the values of a pyvenv.cfg that are used here.
type venvConfig struct {
	home, version string
	systemSites   bool
	// extends is another environment whose packages this one has too: uv run --with makes such environments.
	extends string
}

// readVenv returns the root of the virtual environment that path belongs to, or "". Python looks for pyvenv.cfg beside
// the interpreter and one folder above, without resolving links (PEP 405).
func readVenv(path string) (root string, cfg venvConfig) {
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		file := filepath.Join(dir, "pyvenv.cfg")
		if !isFile(file) {
			continue
		}
		for line := range strings.Lines(firstBytes(file, 4<<10)) {
			key, value, _ := strings.Cut(line, "=")
			value = strings.TrimSpace(value)
			switch strings.ToLower(strings.TrimSpace(key)) {
			case "home":
				cfg.home = value
			case "version", "version_info": // virtualenv and uv write the second
				if v := fullVersion().FindString(value); v != "" {
					cfg.version = v
				}
			case "extends-environment":
				cfg.extends = value
			case "include-system-site-packages":
				cfg.systemSites = strings.EqualFold(value, "true")
			}
		}
		return dir, cfg
	}
	return "", cfg
}

var (
	fullVersion  = lazyregexp.New(`^\d+\.\d+(\.\d+)?`)
	minorVersion = lazyregexp.New(`^python(\d+\.\d+t?)$`)
)

// findPrefix returns the root of the installation that holds the standard library, and its version, such as "3.11" or
// "3.13t". program is the interpreter without links: in a virtual environment that is the one from which it was made,
// or a copy.
func findPrefix(program string, cfg venvConfig) (prefix, minor string) {
	starts := []string{filepath.Dir(program)}
	if cfg.home != "" {
		starts = append(starts, cfg.home)
	}
	var named string
	if found := minorVersion().FindStringSubmatch(filepath.Base(program)); found != nil {
		named = found[1]
	}
	for _, dir := range starts {
		for up := 0; up < 2 || named != ""; up++ { // without a version, a folder far above may belong to another one
			if minor := standardLibrary(dir, named); minor != "" {
				return dir, minor
			}
			if dir == filepath.Dir(dir) {
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	return "", ""
}

// standardLibrary returns the version of the standard library below prefix: named if it is there, or the only one there
// if named is empty; else "".
func standardLibrary(prefix, named string) string {
	var found []string
	for _, lib := range []string{"lib", "lib64"} {
		entries, err := os.ReadDir(filepath.Join(prefix, lib))
		if err != nil {
			continue
		}
		for _, e := range entries {
			m := minorVersion().FindStringSubmatch(e.Name())
			if m == nil || named != "" && m[1] != named || slices.Contains(found, m[1]) ||
				!isFile(filepath.Join(prefix, lib, e.Name(), "os.py")) {
				continue
			}
			found = append(found, m[1])
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// condaVersion returns the whole version of Python in a conda environment, or else minor.
func condaVersion(prefix, minor string) string {
	entries, _ := os.ReadDir(filepath.Join(prefix, "conda-meta"))
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), "python-"+minor+"."); ok {
			if patch, _, ok := strings.Cut(rest, "-"); ok {
				return minor + "." + patch
			}
		}
	}
	return minor
}

// userSite returns the user's own folder of packages (pip install --user), or "".
func userSite(env func(string) (string, bool), minor string) string {
	if off, _ := env("PYTHONNOUSERSITE"); off != "" {
		return ""
	}
	base, _ := env("PYTHONUSERBASE")
	if base == "" {
		home, _ := env("HOME")
		if home == "" {
			return ""
		}
		base = filepath.Join(home, ".local")
	}
	return filepath.Join(base, "lib", "python"+minor, "site-packages")
}

func (in *Installation) addStandardLibrary(prefix, minor string) {
	for _, lib := range []string{"lib", "lib64"} {
		dir := filepath.Join(prefix, lib, "python"+minor)
		in.add(dir, filepath.Join(dir, "lib-dynload"))
	}
	if isFile(filepath.Join(prefix, "lib", "python"+strings.ReplaceAll(minor, ".", "")+".zip")) {
		in.Certain = false
	}
}

// addSites adds the folders of packages below prefix. Debian has dist-packages, and on Debian and Fedora the
// interpreter in /usr also has packages in /usr/local.
func (in *Installation) addSites(prefix, minor string) {
	roots := []string{prefix}
	if prefix == "/usr" {
		roots = []string{"/usr/local", prefix}
	}
	for _, root := range roots {
		for _, lib := range []string{"lib", "lib64"} {
			for _, leaf := range []string{"site-packages", "dist-packages"} {
				in.addSite(filepath.Join(root, lib, "python"+minor, leaf))
			}
		}
		in.addSite(filepath.Join(root, "lib", "python3", "dist-packages"))
	}
}

// addSite adds a folder of packages and the folders that its .pth files name. A line of a .pth file that begins with
// import is code, which addSite does not execute. If the code adds folders, or belongs to an editable installation,
// modules may come from anywhere, so Certain becomes false.
func (in *Installation) addSite(dir string) {
	if !in.add(dir) {
		return
	}
	entries, _ := os.ReadDir(dir) // an unreadable folder has no modules
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".pth") {
			continue
		}
		for line := range strings.Lines(firstBytes(filepath.Join(dir, e.Name()), 64<<10)) {
			line = strings.TrimSpace(line)
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "import ") || strings.HasPrefix(line, "import\t"):
				if strings.HasPrefix(e.Name(), "__editable__") || strings.Contains(line, "addsitedir") ||
					strings.Contains(line, "sys.path") {
					in.Certain = false
				}
			case filepath.IsAbs(line):
				in.add(line)
			default:
				in.add(filepath.Join(dir, line))
			}
		}
	}
}

// add adds those folders that exist, once, and reports whether it added one. A file in place of a folder is an archive
// with unknown modules, so Certain becomes false.
func (in *Installation) add(dirs ...string) (added bool) {
	for _, dir := range dirs {
		switch {
		case isFile(dir):
			in.Certain = false
		case isDir(dir) && !slices.Contains(in.Folders, dir):
			in.Folders, added = append(in.Folders, dir), true
		}
	}
	return added
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
