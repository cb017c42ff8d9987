package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/config/safefile"
	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// fileTest loads a launch in an empty working directory that setUp has prepared. The launch succeeds, or fails with
// want.
type fileTest struct {
	name  string
	line  string // flags, without the script
	setUp func(t *testing.T)
	want  string // the error; HERE is the working directory
}

func runFileTests(t *testing.T, tests []fileTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			if tt.setUp != nil {
				tt.setUp(t)
			}
			_, err := load(tt.line + " s.py")
			got := ""
			if err != nil {
				got = err.Error()
				if !isUsage(err) {
					t.Errorf("the error is a %T, want a *UsageError", err)
				}
			}
			if diff := cmp.Diff(strings.ReplaceAll(tt.want, "HERE", place(t)), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// place returns the working directory of a test as messages name it.
func place(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// file returns a set-up with a config file and these permissions of the file and its folder.
func file(text string, mode, folder os.FileMode) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		write(t, configFileName, text)
		chmod(t, configFileName, mode)
		chmod(t, ".", folder)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// TestExposedConfigFile checks what happens to a config file that another user could have written.
func TestExposedConfigFile(t *testing.T) {
	runFileTests(t, []fileTest{
		{name: "the user's own", setUp: file("preflight-cmd: x\nreport: r", 0o644, 0o755)},
		{
			name: "writable by everybody", setUp: file("role: a", 0o646, 0o755),
			want: "elasticrun.yaml: every user may write it (mode 0646), so this config file is not used: chmod o-w elasticrun.yaml, " +
				"or name it with --config=elasticrun.yaml to use it anyway",
		},
		{
			name: "writable by everybody and the group", setUp: file("role: a", 0o666, 0o755),
			want: "elasticrun.yaml: every user may write it (mode 0666), so this config file is not used: chmod go-w elasticrun.yaml, " +
				"or name it with --config=elasticrun.yaml to use it anyway",
		},
		{
			name: "in a folder of everybody", setUp: file("role: a", 0o644, 0o777),
			want: "elasticrun.yaml: every user may write its folder HERE (mode 0777), so this config file is not used: chmod go-w HERE, " +
				"or name it with --config=elasticrun.yaml to use it anyway",
		},
		{name: "in a sticky folder of everybody", setUp: file("preflight-cmd: x\nreport: r", 0o644, 0o777|os.ModeSticky)},
		{name: "writable by a group", setUp: file("role: a", 0o664, 0o755)},
		{
			name: "a command in a group's file", setUp: file("preflight-cmd: x", 0o664, 0o755),
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, because its group may write it (mode 0664): " +
				"chmod g-w elasticrun.yaml, or give --preflight-cmd on the command line",
		},
		{
			name: "a file to write in a group's file", setUp: file("report: r", 0o664, 0o755),
			want: "elasticrun.yaml: report: this config file may not name a file to write, because its group may write it (mode 0664): " +
				"chmod g-w elasticrun.yaml, or give --report on the command line",
		},
		{
			name: "a folder to write in a group's folder", setUp: file("log-dir: d", 0o644, 0o775),
			want: "elasticrun.yaml: log-dir: this config file may not name a file to write, because a group may write its folder HERE (mode 0775): " +
				"chmod g-w HERE, or give --log-dir on the command line",
		},
		{
			name: "a group's file and folder", setUp: file("event-log: e", 0o664, 0o775),
			want: "elasticrun.yaml: event-log: this config file may not name a file to write, because a group may write its folder HERE (mode 0775): " +
				"chmod g-w HERE elasticrun.yaml, or give --event-log on the command line",
		},
		{
			name:  "a command that the command line replaces",
			line:  "--preflight-cmd=y",
			setUp: file("preflight-cmd: x", 0o664, 0o755),
		},
		{name: "no file to write", setUp: file(`report: ""`, 0o664, 0o755)},

		{name: "named", line: "--config=elasticrun.yaml", setUp: file("report: r", 0o666, 0o777)},
		{
			name: "a command in a named file", line: "--config=elasticrun.yaml", setUp: file("preflight-cmd: x", 0o666, 0o755),
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, because every user may write it (mode 0666): " +
				"chmod go-w elasticrun.yaml, or give --preflight-cmd on the command line",
		},
		{
			name: "a command in a named file of a group", line: "--config=elasticrun.yaml", setUp: file("preflight-cmd: x", 0o664, 0o755),
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, because its group may write it (mode 0664): " +
				"chmod g-w elasticrun.yaml, or give --preflight-cmd on the command line",
		},
	})
}

// TestConfigFileInUserFolder checks that the rules hold in the user's config folder too: HOME can name another user's
// home folder.
func TestConfigFileInUserFolder(t *testing.T) {
	const path = "HERE/home/elasticrun/elasticrun.yaml"
	runFileTests(t, []fileTest{{
		name: "writable by everybody",
		setUp: func(t *testing.T) {
			t.Helper()
			t.Setenv("XDG_CONFIG_HOME", filepath.Join(place(t), "home"))
			t.Setenv("HOME", filepath.Join(place(t), "home"))
			folder, err := os.UserConfigDir()
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(folder, "elasticrun", configFileName), "role: a")
			chmod(t, filepath.Join(folder, "elasticrun", configFileName), 0o666)
			if folder != filepath.Join(place(t), "home") { // as on macOS
				if err := os.Symlink(folder, "home"); err != nil {
					t.Fatal(err)
				}
			}
		},
		want: path + ": every user may write it (mode 0666), so this config file is not used: chmod go-w " + path +
			", or name it with --config=" + path + " to use it anyway",
	}})
}

// TestConfigFileOfOthers runs as root in a folder in which another user has a config file.
func TestConfigFileOfOthers(t *testing.T) {
	testenv.Root(t)
	const other = 4711
	own := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Lchown(path, other, other); err != nil {
			t.Fatal(err)
		}
	}
	owned := func(path string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			write(t, configFileName, "preflight-cmd: x\nreport: r")
			own(t, path)
		}
	}
	linked := func(path string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			write(t, "real.yaml", "preflight-cmd: x\nreport: r")
			symlink(t, "real.yaml", configFileName)
			own(t, path)
		}
	}
	const unused = ", so this config file is not used: name it with --config=elasticrun.yaml to use it anyway"
	runFileTests(t, []fileTest{
		{
			name:  "the file",
			setUp: owned(configFileName),
			want:  "elasticrun.yaml: it belongs to uid 4711, not to root, who runs this" + unused,
		},
		{name: "the named file", line: "--config=elasticrun.yaml --preflight-cmd=y", setUp: owned(configFileName)},
		{
			name: "a command in the named file", line: "--config=elasticrun.yaml", setUp: owned(configFileName),
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, because it belongs to uid 4711, not to root, who runs this: " +
				"give --preflight-cmd on the command line",
		},
		{
			name: "the folder", setUp: owned("."),
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, because its folder HERE belongs to uid 4711: " +
				"give --preflight-cmd on the command line",
		},
		{
			name: "another user's link to root's file", setUp: linked(configFileName),
			want: "elasticrun.yaml: the symbolic link elasticrun.yaml belongs to uid 4711, not to root, who runs this" + unused,
		},
		{
			name: "root's link to another user's file", setUp: linked("real.yaml"),
			want: "elasticrun.yaml: it belongs to uid 4711, not to root, who runs this" + unused,
		},
	})
}

// TestLinkedConfigFile checks that the folders of a link count like the working directory. The link leads through a
// link to a folder, after which .. is that folder's parent.
func TestLinkedConfigFile(t *testing.T) {
	through := func(mode os.FileMode) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			write(t, "a/b/empty", "")
			write(t, "a/conf/real.yaml", "grow: never")
			symlink(t, "a/b", "short")
			symlink(t, "short/../conf/real.yaml", configFileName)
			chmod(t, "a/conf", mode)
		}
	}
	runFileTests(t, []fileTest{
		{name: "safe", setUp: through(0o755)},
		{
			name: "a folder of everybody", setUp: through(0o757),
			want: "elasticrun.yaml: every user may write its folder HERE/a/conf (mode 0757), so this config file is not used: " +
				"chmod o-w HERE/a/conf, or name it with --config=elasticrun.yaml to use it anyway",
		},
		{
			name: "to nothing, such as a disk that is not mounted", setUp: func(t *testing.T) { t.Helper(); symlink(t, "not mounted/real.yaml", configFileName) },
			want: "elasticrun.yaml: cannot read the config file: no such file or directory",
		},
	})
	t.Run("is read", func(t *testing.T) {
		clean(t)
		through(0o755)(t)
		if c, err := load("s.py"); err != nil || c.Rendezvous.Grow != "never" {
			t.Errorf("got %+v, %v, want the value of the file", c, err)
		}
	})
}

// TestOddConfigFile checks that what is no regular file, or too large, is refused in one line and without waiting.
func TestOddConfigFile(t *testing.T) {
	text := func(path, text string) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); write(t, path, text) }
	}
	fifo := func(path string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(target string) func(*testing.T) {
		return func(t *testing.T) { t.Helper(); symlink(t, target, configFileName) }
	}
	const cannot = "elasticrun.yaml: cannot read the config file: "
	runFileTests(t, []fileTest{
		{name: "FIFO", setUp: fifo(configFileName), want: cannot + "it is a FIFO, not a regular file"},
		{
			name: "link to a FIFO", setUp: func(t *testing.T) { t.Helper(); fifo("f")(t); link("f")(t) },
			want: cannot + "it is a FIFO, not a regular file",
		},
		{name: "link to a device", setUp: link("/dev/zero"), want: cannot + "it is a device, not a regular file"},
		{name: "link to itself", setUp: link(configFileName), want: cannot + "too many levels of symbolic links"},
		{
			name: "device",
			line: "--config=/dev/zero",
			want: "--config=/dev/zero: cannot read the config file: it is a device, not a regular file",
		},
		{name: "folder", setUp: text(configFileName+"/x", ""), want: cannot + "is a directory"},
		{
			name:  "huge",
			setUp: text(configFileName, strings.Repeat("#\n", 1<<19)+"#"),
			want:  cannot + "it is larger than 1 MiB, so it is no config file",
		},
		{name: "large", setUp: text(configFileName, strings.Repeat("#\n", 1<<19))},
		{
			name: "two documents", setUp: text(configFileName, "%YAML 1.1\n---\nrole: a\n# c\n---  \n\nnnodes: 2\n"),
			want: "elasticrun.yaml: line 5: begins another document, which would be ignored: keep one",
		},
		{name: "one document", setUp: text(configFileName, "\uFEFF# c\n---\nrole: a---\n---\n# end\n")},
		{
			name: "odd name", line: "--config=a\x1b[2Jb.yaml", setUp: text("a\x1b[2Jb.yaml", "- x"),
			want: `"a\x1b[2Jb.yaml": line 1: must be keys with values, such as nnodes: 2`,
		},
	})
}

// TestRefuse checks which effects an exposed config file cannot have.
func TestRefuse(t *testing.T) {
	flags := []Flag{
		{Name: "read", Effect: Reads},
		{Name: "write", Effect: Writes},
		{Name: "run", Effect: Executes},
		{Name: "none"},
	}
	refused := func(c configFile) (names []string) {
		for _, f := range flags {
			err := c.refuse(flags, []Setting{{Name: f.Name, Value: "x", Source: Source{Kind: FromFile}}})
			if usage, ok := errors.AsType[*UsageError](err); ok && usage.Where == "c.yaml: "+f.Name {
				names = append(names, f.Name)
			}
			for _, kind := range []SourceKind{FromDefault, FromScheduler, FromEnv, FromFlag} {
				if err := c.refuse(flags, []Setting{{Name: f.Name, Value: "x", Source: Source{Kind: kind}}}); err != nil {
					t.Errorf("%s, source %d: %v", f.Name, kind, err)
				}
			}
		}
		return names
	}
	some := safefile.Exposure{Grade: safefile.ExposedToSome, How: "x"}
	for _, tt := range []struct {
		name string
		file configFile
		want []string
	}{
		{"found, unexposed", configFile{path: "c.yaml"}, nil},
		{"named, unexposed", configFile{path: "c.yaml", named: true}, nil},
		{"found, exposed", configFile{path: "c.yaml", exposure: some}, []string{"write", "run"}},
		{"named, exposed", configFile{path: "c.yaml", named: true, exposure: some}, []string{"run"}},
	} {
		if diff := cmp.Diff(tt.want, refused(tt.file)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestYAMLProblem(t *testing.T) {
	for message, want := range map[string]string{
		"yaml: unknown anchor 'a' referenced": "*a refers to nothing: put a text that begins with * in quotes",
		"yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `x` into map[string]interface {}\n  line 2": "line 1: must be keys with values, such as nnodes: 2",
		"yaml: line 3: could not find expected ':'":                                                            "line 3: has no colon, or the line before it has none: write KEY: VALUE",
		"yaml: could not find expected ':'":                                                                    "line 1: has no colon, or the line before it has none: write KEY: VALUE",
		"yaml: line 4: did not find expected ',' or ']'":                                                       "near line 4: a list that begins with [ lacks a comma or its ]",
		"yaml: cannot decode !!str `x` as a !!int":                                                             `"x" is not of the type !!int that stands before it: leave !!int out`,
		"yaml: line 2: found unknown directive name":                                                           "line 2: is not valid YAML: found unknown directive name",
		"something else": "is not valid YAML: something else",
	} {
		if got := yamlProblem(message); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
