package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/userdir"
)

// Folders are the folders that contain users' folders, the best first.
type Folders []string

// Machine returns the folders of this machine. They do not depend on the environment, because a launcher that Slurm,
// cron or ssh has started has another environment than the shell that asks for it. The first folder is in memory, so it
// is empty after a boot. The names are short enough for the path of a Unix socket.
func Machine() Folders { return Folders{"/dev/shm", "/tmp"} }

// folder is one user's folder, which only that user can change.
type folder struct {
	*os.File
	uid int
}

// openFolder opens a user's folder. It refuses one that another user could have made or could change.
func openFolder(parent string, uid int) (*folder, error) {
	name := filepath.Join(parent, userdir.Name(uid))
	dir, err := os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := dir.Stat()
	if err == nil && (userdir.Owner(info) != uid || info.Mode().Perm()&0o022 != 0) {
		err = fmt.Errorf("%s: another user may have made it or may change it", name)
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return &folder{dir, uid}, nil
}

// makeFolder opens the folder in which this user registers launchers. It makes the folder if necessary.
func (f Folders) makeFolder() (*folder, error) {
	var errs []error
	for _, parent := range f {
		uid := os.Geteuid()
		err := os.Mkdir(filepath.Join(parent, userdir.Name(uid)), 0o700)
		if err == nil || errors.Is(err, fs.ErrExist) {
			var dir *folder
			if dir, err = openFolder(parent, uid); err == nil {
				return dir, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// users returns the users that have a folder in parent.
func users(parent string) []int {
	entries, _ := os.ReadDir(parent)
	var uids []int
	for _, e := range entries {
		if uid, ok := userdir.Of(e.Name()); ok {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}
