package userdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is a folder for sockets and locks of one user, in which no other user except root can make or rename anything.
// Get it from [Find].
type Dir struct {
	// Path is the folder; Make makes it. Its parent must exist.
	Path string
	// Source is the variable that chose the folder, such as XDG_RUNTIME_DIR=/run/user/1000; empty for none.
	Source string

	uid int
	// private says that the parent must belong to the user too. Otherwise any user may make files in the parent, but must
	// not be able to rename files of others there.
	private bool
	// otherwise is the advice in errors: what to do if the folder cannot be used.
	otherwise string
}

// Find returns the folder of this user. It makes nothing, and the folder may be unusable; see [Dir.Check].
//
// All processes of a user should find the same folder. A shell that su or cron has started has no XDG_RUNTIME_DIR. Then
// Find uses the folder that systemd makes for the user, where other processes of the user probably are.
func Find(lookup func(name string) (value string, set bool)) Dir {
	uid := os.Geteuid()
	const runtime = "XDG_RUNTIME_DIR"
	if parent, _ := lookup(runtime); parent != "" {
		return Dir{
			Path: filepath.Join(parent, "elasticrun"), Source: runtime + "=" + parent, uid: uid, private: true,
			otherwise: "set " + runtime + " to a folder of your own in all terminals, or unset it in all of them",
		}
	}
	own := "/run/user/" + strconv.Itoa(uid)
	if info, err := os.Stat(own); err == nil && Owner(info) == uid && unix.Access(own, unix.W_OK|unix.X_OK) == nil {
		return Dir{Path: filepath.Join(own, "elasticrun"), uid: uid, private: true, otherwise: "set " + runtime}
	}
	d := Dir{
		Path: filepath.Join(os.TempDir(), Name(uid)), uid: uid,
		otherwise: "set " + runtime + " to a folder of your own in all terminals",
	}
	if tmp, _ := lookup("TMPDIR"); tmp != "" {
		d.Source = "TMPDIR=" + tmp
	}
	return d
}

// Check reports why the folder cannot be used, or why Make would fail. It makes nothing.
func (d Dir) Check() error {
	parent := filepath.Dir(d.Path)
	err := d.checkParent(parent)
	if err == nil {
		if err = d.checkOwn(); errors.Is(err, fs.ErrNotExist) {
			err = writable(parent)
		}
	}
	if err != nil {
		return fmt.Errorf("%w; %s", err, d.otherwise)
	}
	return nil
}

// Make makes the folder if it does not exist, and checks it. Its errors are those of Check.
func (d Dir) Make() error {
	if err := d.Check(); err != nil {
		return err
	}
	if err := os.Mkdir(d.Path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w; %s", err, d.otherwise)
	}
	return d.Check()
}

// checkParent refuses a parent in which another user could replace the folder.
func (d Dir) checkParent(parent string) error {
	if !filepath.IsAbs(parent) {
		return fmt.Errorf("%s is no absolute path", parent)
	}
	info, err := os.Stat(parent)
	if err != nil {
		return fmt.Errorf("folder %s: %w", parent, cause(err))
	}
	others, sticky := info.Mode().Perm()&0o022 != 0, info.Mode()&fs.ModeSticky != 0
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", parent)
	case d.private && Owner(info) != d.uid:
		return fmt.Errorf("folder %s belongs to user %d, and this is user %d", parent, Owner(info), d.uid)
	case Owner(info) != d.uid && Owner(info) != 0:
		return fmt.Errorf("folder %s belongs to user %d, who could replace what user %d makes there",
			parent, Owner(info), d.uid)
	case others && !sticky:
		return fmt.Errorf("folder %s: other users may rename files in it", parent)
	}
	return nil
}

// checkOwn refuses a folder that another user made or can change, and one in which nothing can be made. The error is
// [fs.ErrNotExist] if there is none.
func (d Dir) checkOwn() error {
	info, err := os.Lstat(d.Path)
	switch {
	case err != nil:
		return fmt.Errorf("folder %s: %w", d.Path, cause(err))
	case info.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s is a link, which another user may have made: remove it", d.Path)
	case !info.IsDir():
		return fmt.Errorf("%s is no folder: remove it", d.Path)
	case Owner(info) != d.uid:
		return fmt.Errorf("folder %s belongs to user %d, and this is user %d", d.Path, Owner(info), d.uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("folder %s: other users may enter it: chmod 700 %[1]s", d.Path)
	}
	return writable(d.Path)
}

// writable reports why no file can be made in a folder. On a read-only file system even root cannot.
func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("folder %s: %w", dir, err)
	}
	return nil
}

// maxSocketPath is the length in bytes of the longest path that a Unix socket may have everywhere: Linux allows 107,
// macOS 103.
const maxSocketPath = 103

// Socket returns the path of a socket in the folder. It fails if the path is too long.
func (d Dir) Socket(name string) (string, error) {
	path := filepath.Join(d.Path, name)
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("the path %s of a Unix socket is longer than %d bytes; set XDG_RUNTIME_DIR to a folder of "+
			"your own with a shorter path in all terminals", path, maxSocketPath)
	}
	return path, nil
}

// Owner returns the user id of a file's owner, -1 if it is unknown.
func Owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// cause returns the system's error without the path, which the message has already.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
