package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// place is the working directory of a test, as messages name it.
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

// TestExposedConfigFile holds what becomes of a config file that somebody else could have written. HERE is the working
// directory.
func TestExposedConfigFile(t *testing.T) {
	type mode = os.FileMode
	tests := []struct {
		name         string
		line         string
		text         string
		file, folder mode
		want         string // the error; empty for none
	}{
		{name: "the user's own", text: "preflight-cmd: x\nreport: r", file: 0o644, folder: 0o755},
		{
			name: "writable by everybody", text: "role: a", file: 0o646, folder: 0o755,
			want: "elasticrun.yaml: every user may write it (mode 0646), so this config file is not used: chmod o-w elasticrun.yaml, " +
				"or name it with --config=elasticrun.yaml to use it all the same",
		},
		{
			name: "writable by everybody and the group", text: "role: a", file: 0o666, folder: 0o755,
			want: "elasticrun.yaml: every user may write it (mode 0666), so this config file is not used: chmod go-w elasticrun.yaml, " +
				"or name it with --config=elasticrun.yaml to use it all the same",
		},
		{
			name: "in a folder of everybody", text: "role: a", file: 0o644, folder: 0o777,
			want: "elasticrun.yaml: every user may write its folder HERE (mode 0777), so this config file is not used: chmod go-w HERE, " +
				"or name it with --config=elasticrun.yaml to use it all the same",
		},
		{name: "in a sticky folder of everybody", text: "preflight-cmd: x\nreport: r", file: 0o644, folder: 0o777 | os.ModeSticky},
		{name: "writable by a group", text: "role: a", file: 0o664, folder: 0o755},
		{
			name: "a command in a group's file", text: "preflight-cmd: x", file: 0o664, folder: 0o755,
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, since its group may write it (mode 0664): " +
				"chmod g-w elasticrun.yaml, or give --preflight-cmd on the command line",
		},
		{
			name: "a file to write in a group's file", text: "report: r", file: 0o664, folder: 0o755,
			want: "elasticrun.yaml: report: this config file may not name a file to write, since its group may write it (mode 0664): " +
				"chmod g-w elasticrun.yaml, or give --report on the command line",
		},
		{
			name: "a folder to write in a group's folder", text: "log-dir: d", file: 0o644, folder: 0o775,
			want: "elasticrun.yaml: log-dir: this config file may not name a file to write, since a group may write its folder HERE (mode 0775): " +
				"chmod g-w HERE, or give --log-dir on the command line",
		},
		{
			name: "a group's file and folder", text: "event-log: e", file: 0o664, folder: 0o775,
			want: "elasticrun.yaml: event-log: this config file may not name a file to write, since a group may write its folder HERE (mode 0775): " +
				"chmod g-w HERE elasticrun.yaml, or give --event-log on the command line",
		},
		{name: "a command that the command line replaces", line: "--preflight-cmd=y", text: "preflight-cmd: x", file: 0o664, folder: 0o755},
		{name: "no file to write", text: `report: ""`, file: 0o664, folder: 0o755},

		{name: "named", line: "--config=elasticrun.yaml", text: "report: r", file: 0o666, folder: 0o777},
		{
			name: "a command in a named file", line: "--config=elasticrun.yaml", text: "preflight-cmd: x", file: 0o666, folder: 0o755,
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, since every user may write it (mode 0666): " +
				"chmod go-w elasticrun.yaml, or give --preflight-cmd on the command line",
		},
		{
			name: "a command in a named file of a group", line: "--config=elasticrun.yaml", text: "preflight-cmd: x", file: 0o664, folder: 0o755,
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, since its group may write it (mode 0664): " +
				"chmod g-w elasticrun.yaml, or give --preflight-cmd on the command line",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			write(t, "elasticrun.yaml", tt.text)
			chmod(t, "elasticrun.yaml", tt.file)
			chmod(t, ".", tt.folder)
			_, err := load(tt.line + " s.py")
			checkRefusal(t, err, strings.ReplaceAll(tt.want, "HERE", place(t)))
		})
	}
}

// checkRefusal compares a *UsageError with its text; empty is no error.
func checkRefusal(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
		if !isUsage(err) {
			t.Errorf("the error is a %T, want a *UsageError", err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConfigFileInUserFolder: what holds in the working directory holds in the user's config folder, which HOME may place
// in another user's home.
func TestConfigFileInUserFolder(t *testing.T) {
	clean(t)
	folder, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "elasticrun", FileName)
	write(t, path, "role: a")
	chmod(t, filepath.Dir(path), 0o755)
	chmod(t, path, 0o666)
	_, err = load("s.py")
	checkRefusal(t, err, path+": every user may write it (mode 0666), so this config file is not used: chmod go-w "+path+
		", or name it with --config="+path+" to use it all the same")
}

// TestConfigFileOfOthers: root runs in the folder of somebody who has a config file there.
func TestConfigFileOfOthers(t *testing.T) {
	testenv.Root(t)
	const other = 4711
	own := func(path string) {
		t.Helper()
		if err := os.Lchown(path, other, other); err != nil {
			t.Fatal(err)
		}
	}
	const unused = ", so this config file is not used: name it with --config=elasticrun.yaml to use it all the same"
	tests := []struct {
		name  string
		line  string
		setUp func()
		want  string
	}{
		{
			name: "the file", setUp: func() { own("elasticrun.yaml") },
			want: "elasticrun.yaml: it belongs to uid 4711, not to root, who runs this" + unused,
		},
		{name: "the named file", line: "--config=elasticrun.yaml --preflight-cmd=y", setUp: func() { own("elasticrun.yaml") }},
		{
			name: "a command in the named file", line: "--config=elasticrun.yaml", setUp: func() { own("elasticrun.yaml") },
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, since it belongs to uid 4711, not to root, who runs this: " +
				"give --preflight-cmd on the command line",
		},
		{
			name: "the folder", setUp: func() { own(".") },
			want: "elasticrun.yaml: preflight-cmd: this config file may not name a command, since its folder HERE belongs to uid 4711: " +
				"give --preflight-cmd on the command line",
		},
		{
			name: "a link to a file of the user's", setUp: func() {
				rename(t, "elasticrun.yaml", "mine.yaml")
				symlink(t, "mine.yaml", "elasticrun.yaml")
				own("elasticrun.yaml")
			},
			want: "elasticrun.yaml: the symbolic link elasticrun.yaml belongs to uid 4711, not to root, who runs this" + unused,
		},
		{
			name: "a link of the user's to another's file", setUp: func() {
				rename(t, "elasticrun.yaml", "theirs.yaml")
				symlink(t, "theirs.yaml", "elasticrun.yaml")
				own("theirs.yaml")
			},
			want: "elasticrun.yaml: it belongs to uid 4711, not to root, who runs this" + unused,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			write(t, "elasticrun.yaml", "preflight-cmd: x\nreport: r")
			tt.setUp()
			_, err := load(tt.line + " s.py")
			checkRefusal(t, err, strings.ReplaceAll(tt.want, "HERE", place(t)))
		})
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestLinkedConfigFile: the folders that a link leads through count like the working directory. The middle of the way is a
// link to a folder, behind which .. is that folder's parent.
func TestLinkedConfigFile(t *testing.T) {
	clean(t)
	write(t, "a/b/empty", "")
	write(t, "a/conf/real.yaml", "role: a")
	symlink(t, "a/b", "short")
	symlink(t, "short/../conf/real.yaml", "elasticrun.yaml")
	chmod(t, "a/conf", 0o755)
	if c, err := load("s.py"); err != nil || c.Role != "a" {
		t.Fatalf("got %+v, %v, want the role of the file", c, err)
	}
	chmod(t, "a/conf", 0o757)
	conf, err := filepath.EvalSymlinks(filepath.Join(place(t), "a", "conf"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = load("s.py")
	checkRefusal(t, err, "elasticrun.yaml: every user may write its folder "+conf+" (mode 0757), so this config file is not used: chmod o-w "+conf+
		", or name it with --config=elasticrun.yaml to use it all the same")
}

// TestDanglingConfigFile: a link to nothing is no sign that no config file was wanted.
func TestDanglingConfigFile(t *testing.T) {
	clean(t)
	symlink(t, "not mounted/real.yaml", "elasticrun.yaml")
	_, err := load("s.py")
	checkRefusal(t, err, "elasticrun.yaml: cannot read the config file: no such file or directory")
}

// TestWayTo: the end of the way is the file, however many links lead to it, and nothing where that cannot be seen.
func TestWayTo(t *testing.T) {
	clean(t)
	write(t, "real.yaml", "")
	symlink(t, "real.yaml", "second")
	symlink(t, place(t)+"/second", "first")
	symlink(t, "loop", "loop")
	file, err := os.Stat("real.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		inodes int
		seen   bool
	}{"real.yaml": {1, true}, "first": {5, true}, "gone": {1, false}, "loop": {2 * maxLinks, false}} {
		way, end := wayTo(path)
		if len(way) != want.inodes || (end != nil) != want.seen || end != nil && !os.SameFile(end, file) {
			t.Errorf("%s: %d inodes, end %v", path, len(way), end)
		}
	}
}

// TestOddConfigFile: what is no regular file, or no config file by its size, is refused in one line, and waited for by nobody.
func TestOddConfigFile(t *testing.T) {
	tests := []struct {
		name         string
		line         string
		fifo         string // is made, if not empty
		link, target string // the same
		file, text   string // the same
		want         string
	}{
		{name: "FIFO", line: "s.py", fifo: FileName, want: "elasticrun.yaml: cannot read the config file: it is a FIFO, not a regular file"},
		{
			name: "link to a FIFO", line: "s.py", fifo: "f", link: FileName, target: "f",
			want: "elasticrun.yaml: cannot read the config file: it is a FIFO, not a regular file",
		},
		{
			name: "link to a device", line: "s.py", link: FileName, target: "/dev/zero",
			want: "elasticrun.yaml: cannot read the config file: it is a device, not a regular file",
		},
		{
			name: "link to itself", line: "s.py", link: FileName, target: FileName,
			want: "elasticrun.yaml: cannot read the config file: too many levels of symbolic links",
		},
		{
			name: "device", line: "--config=/dev/zero s.py",
			want: "--config=/dev/zero: cannot read the config file: it is a device, not a regular file",
		},
		{
			name: "huge", line: "s.py", file: FileName, text: strings.Repeat("#\n", 1<<19) + "#",
			want: "elasticrun.yaml: cannot read the config file: it is larger than 1 MiB, which no config file is",
		},
		{name: "large", line: "s.py", file: FileName, text: strings.Repeat("#\n", 1<<19)},
		{
			name: "odd name", line: "--config=a\x1b[2Jb.yaml s.py", file: "a\x1b[2Jb.yaml", text: "- x",
			want: `"a\x1b[2Jb.yaml": line 1: must be keys with values, such as nnodes: 2`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			if tt.fifo != "" {
				if err := syscall.Mkfifo(tt.fifo, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.link != "" {
				symlink(t, tt.target, tt.link)
			}
			if tt.file != "" {
				write(t, tt.file, tt.text)
			}
			_, err := load(tt.line)
			checkRefusal(t, err, tt.want)
		})
	}
}

// TestConfigFIFO: --config may name a FIFO, as a shell does for <(command), which is waited for.
func TestConfigFIFO(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) (*os.File, fs.FileInfo) {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, info, err := openConfigFile(path, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f, info
	}
	t.Run("written", func(t *testing.T) {
		f, info := open("written")
		wrote := make(chan error)
		go func() { wrote <- os.WriteFile(f.Name(), []byte("role: a"), 0) }()
		data, err := readBounded(f, info, time.Minute)
		if string(data) != "role: a" || err != nil {
			t.Errorf("got %q, %v", data, err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
	t.Run("no writer", func(t *testing.T) {
		f, info := open("silent")
		_, err := readBounded(f, info, time.Millisecond)
		if err == nil || err.Error() != "nobody wrote to the FIFO for 1ms" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no end", func(t *testing.T) {
		f, info := open("endless")
		w, err := os.OpenFile(f.Name(), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
		if _, err := w.WriteString("role: a"); err != nil {
			t.Fatal(err)
		}
		_, err = readBounded(f, info, 10*time.Millisecond)
		if err == nil || err.Error() != "the FIFO was not written to its end in 10ms" {
			t.Errorf("got %v", err)
		}
	})
}
