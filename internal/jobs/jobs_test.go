package jobs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/userdir"
)

// listed returns what a List shows, without the names of files.
func listed(f Folders, allUsers bool) []Launcher {
	var all []Launcher
	for _, r := range f.List(allUsers) {
		all = append(all, r.Launcher)
	}
	return all
}

func register(t *testing.T, f Folders, l Launcher) *Entry {
	t.Helper()
	e, err := f.Register(l)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// userFolder returns this user's folder below the first of f.
func userFolder(f Folders) string { return filepath.Join(f[0], userdir.Name(os.Geteuid())) }

// TestRegister checks that launchers are listed from their registration to its end, in order, and that nothing stays.
func TestRegister(t *testing.T) {
	f := Folders{t.TempDir(), t.TempDir()}
	if got := listed(f, false); got != nil {
		t.Errorf("listed %v before the first registration", got)
	}
	a := Launcher{RunID: "a", Script: "train.py", Backend: "c10d", Endpoint: "h:1", LogDir: "/l", PID: 7, Started: time.Unix(2, 0).UTC()}
	b := Launcher{RunID: "b\n", PID: 8, Started: time.Unix(1, 0).UTC()}
	one, two := register(t, f, a), register(t, f, b)
	for _, all := range []bool{false, true} {
		if diff := cmp.Diff([]Launcher{b, a}, listed(f, all)); diff != "" {
			t.Errorf("of all users %v (-want +got):\n%s", all, diff)
		}
	}
	if info, err := os.Stat(userFolder(f)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	sockets, err := filepath.Glob(filepath.Join(userFolder(f), "*"+socketSuffix))
	if err != nil || len(sockets) != 2 {
		t.Fatal(sockets, err)
	}
	if info, err := os.Stat(sockets[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, e := range []*Entry{one, two} {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(userFolder(f)); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
}

func TestDial(t *testing.T) {
	f := Folders{t.TempDir()}
	e := register(t, f, Launcher{RunID: "a"})
	r := f.List(false)[0]
	c, err := r.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	served, err := e.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	if _, err := served.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Dial(t.Context()); err == nil {
		t.Error("a launcher that has gone was reached")
	}
}

// TestDialForeign checks that a client notices a server of another user behind the socket.
func TestDialForeign(t *testing.T) {
	f := Folders{t.TempDir()}
	e := register(t, f, Launcher{})
	defer e.Close()
	other := os.Geteuid() + 1
	if err := os.Rename(userFolder(f), filepath.Join(f[0], userdir.Name(other))); err != nil {
		t.Fatal(err)
	}
	r := Running{UID: other, parent: f[0], name: e.name}
	if _, err := r.Dial(t.Context()); err == nil {
		t.Error("a folder of the wrong user was accepted")
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(filepath.Join(f[0], userdir.Name(other)), other, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dial(t.Context()); err == nil {
		t.Error("a server of the wrong user was accepted")
	}
	if left := f.List(true); len(left) != 1 {
		t.Errorf("listed %v", left)
	}
	_ = e.record.Close() // the process was killed
	if left := f.List(true); len(left) != 0 {
		t.Errorf("listed %v", left)
	}
	if _, err := os.Lstat(e.dir.path(e.name)); err != nil {
		t.Errorf("root has removed a file of another user: %v", err)
	}
}

// TestKilled checks that the files of a killed launcher are not listed, and are removed.
func TestKilled(t *testing.T) {
	f := Folders{t.TempDir()}
	gone, lives := register(t, f, Launcher{RunID: "gone"}), register(t, f, Launcher{RunID: "lives"})
	defer lives.Close()
	_ = gone.record.Close()
	_ = gone.UnixListener.Close()
	// Files of launchers that were killed while they registered:
	for _, name := range []string{"job-1", "job-2", "job-2.new"} {
		if err := os.WriteFile(filepath.Join(userFolder(f), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]Launcher{{RunID: "lives"}}, listed(f, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left, err := os.ReadDir(userFolder(f)); err != nil || len(left) != 2 {
		t.Errorf("left %v: %v", left, err)
	}
}

// TestListedTogether checks that a launcher that was killed is not listed while another List looks at its record.
func TestListedTogether(t *testing.T) {
	f := Folders{t.TempDir()}
	gone := register(t, f, Launcher{RunID: "gone"})
	_ = gone.record.Close()
	_ = gone.UnixListener.Close()
	other, err := os.Open(gone.dir.path(gone.name))
	must(t, err)
	defer other.Close()
	if !stale(other) {
		t.Fatal("a record without a launcher counts as locked by one")
	}
	if got := listed(f, false); got != nil {
		t.Errorf("listed %v", got)
	}
}

// TestRegisterElsewhere checks that a folder which others could have made or could change is not used.
func TestRegisterElsewhere(t *testing.T) {
	for name, spoil := range map[string]func(f Folders) error{
		"no parent": func(f Folders) error { f[0] = filepath.Join(f[0], "none"); return nil },
		"a file":    func(f Folders) error { return os.WriteFile(userFolder(f), nil, 0o600) },
		"a link":    func(f Folders) error { return os.Symlink(f[1], userFolder(f)) },
		"others' write": func(f Folders) error {
			return errors.Join(os.Mkdir(userFolder(f), 0o700), os.Chmod(userFolder(f), 0o777))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := Folders{t.TempDir(), t.TempDir()}
			must(t, spoil(f))
			e := register(t, f, Launcher{RunID: "a"})
			defer e.Close()
			if got := f.List(false); len(got) != 1 || got[0].parent != f[1] {
				t.Errorf("listed %+v", got)
			}
			if e, err := f[:1].Register(Launcher{}); err == nil {
				_ = e.Close()
				t.Error("registered")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
