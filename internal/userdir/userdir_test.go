package userdir

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// found returns the folder of a user whose environment has these variables, in pairs.
func found(variables ...string) Dir {
	return Find(func(name string) (string, bool) {
		for i := 0; i < len(variables); i += 2 {
			if variables[i] == name {
				return variables[i+1], true
			}
		}
		return "", false
	})
}

func TestFind(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	d := found("XDG_RUNTIME_DIR", "/run/here", "TMPDIR", tmp)
	if d.Path != "/run/here/elasticrun" || d.Source != "XDG_RUNTIME_DIR=/run/here" {
		t.Errorf("with XDG_RUNTIME_DIR: %+v", d)
	}
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d", os.Geteuid())); err == nil {
		t.Skip("this user has a folder in /run/user")
	}
	d = found("XDG_RUNTIME_DIR", "", "TMPDIR", tmp)
	if want := filepath.Join(tmp, fmt.Sprintf("elasticrun-%d", os.Geteuid())); d.Path != want || d.Source != "TMPDIR="+tmp {
		t.Errorf("without XDG_RUNTIME_DIR: %+v", d)
	}
}

// Make makes a folder that only this user can enter, and a second call finds it.
func TestMake(t *testing.T) {
	d := found("XDG_RUNTIME_DIR", t.TempDir())
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Check made the folder: %v", err)
	}
	for range 2 {
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Lstat(d.Path); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("made %v, %v", info.Mode(), err)
	}
	if _, err := d.Socket("s"); len(d.Path) < 90 && err != nil {
		t.Error(err)
	}
}

// Whatever another user could have made or could change is refused, with what to do.
func TestRefusals(t *testing.T) {
	other := 12345
	for _, tt := range []struct {
		name string
		// spoil changes the parent or makes something in the place of the folder.
		spoil func(parent, own string) error
		want  string
		root  bool // needs root
	}{
		{name: "no parent", spoil: func(parent, _ string) error { return os.Remove(parent) }, want: "no such file or directory"},
		{
			name:  "the parent is a file",
			spoil: func(parent, _ string) error { return errors.Join(os.Remove(parent), os.WriteFile(parent, nil, 0o600)) },
			want:  "is no folder",
		},
		{
			name:  "the parent is open to all",
			spoil: func(parent, _ string) error { return os.Chmod(parent, 0o777) }, //nolint:gosec // that is the point
			want:  "other users may rename files in it",
		},
		{name: "a link", spoil: func(parent, own string) error { return os.Symlink(parent, own) }, want: "is a link"},
		{name: "a file", spoil: func(_, own string) error { return os.WriteFile(own, nil, 0o600) }, want: "is no folder"},
		{
			name:  "others may enter",
			spoil: func(_, own string) error { return os.Mkdir(own, 0o755) }, //nolint:gosec // that is the point
			want:  "chmod 700",
		},
		{
			name: "another user's parent", root: true,
			spoil: func(parent, _ string) error { return os.Chown(parent, other, other) },
			want:  "belongs to user 12345",
		},
		{
			name: "another user's folder", root: true,
			spoil: func(_, own string) error { return errors.Join(os.Mkdir(own, 0o700), os.Chown(own, other, other)) },
			want:  "belongs to user 12345",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("needs root, to make files of another user")
			}
			parent := filepath.Join(t.TempDir(), "run")
			d := found("XDG_RUNTIME_DIR", parent)
			if err := errors.Join(os.Mkdir(parent, 0o700), tt.spoil(parent, d.Path)); err != nil {
				t.Fatal(err)
			}
			for what, f := range map[string]func() error{"Check": d.Check, "Make": d.Make} {
				err := f()
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "; set XDG_RUNTIME_DIR") {
					t.Errorf("%s: %v, want %q", what, err, tt.want)
				}
			}
		})
	}
}

func TestRelativeFolder(t *testing.T) {
	if err := found("XDG_RUNTIME_DIR", "run").Check(); err == nil || !strings.Contains(err.Error(), "run is no absolute path") {
		t.Error(err)
	}
}

func TestSocketPathLength(t *testing.T) {
	d := Dir{Path: "/" + strings.Repeat("x", 100)}
	if _, err := d.Socket("ab"); err == nil || !strings.Contains(err.Error(), "longer than 103 bytes") {
		t.Error(err)
	}
	if path, err := d.Socket("a"); err != nil || len(path) != 103 {
		t.Errorf("%s, %v", path, err)
	}
}

func TestPeerUID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if uid, err := PeerUID(c); uid != os.Geteuid() || err != nil || !Trusted(uid) {
		t.Errorf("user %d, %v", uid, err)
	}
	if Trusted(os.Geteuid() + 1) {
		t.Error("any user is trusted")
	}
}
