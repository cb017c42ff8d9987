package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/printable"
)

// Grade says who else than the user and root could have written a file.
type Grade int

// The grades, in ascending order.
const (
	Unexposed Grade = iota
	// ExposedToSome means that a group or the owner of a folder on the way could have written the file.
	ExposedToSome
	// ExposedToAnybody means that every user could have written the file, or that it belongs to another user.
	ExposedToAnybody
)

// Exposure says how others could have written a file. The zero value means that they could not.
type Exposure struct {
	Grade Grade
	// How is a clause for people: "its group may write it (mode 0664)". It is empty for Unexposed.
	How string
	// Remedy is the command that removes the exposure. It is empty if the user cannot remove it.
	Remedy string
}

// inode is a file, symbolic link or folder on the way to a file.
type inode struct {
	path string
	kind inodeKind
	uid  int
	mode fs.FileMode // permissions and the sticky bit
}

type inodeKind int

const (
	regularFile inodeKind = iota
	symlink               // its owner, and everybody who may write its folder, decides where it leads
	folder                // holds the file or a symlink
)

// judge returns the worst exposure of the inodes on the way to a file, for the user with this uid.
func judge(way []inode, user int) Exposure {
	var worst Exposure
	var change []string // the arguments of chmod
	who, canChange := "o", true
	for _, n := range way {
		e := n.exposure(user)
		if e.Grade == Unexposed {
			continue
		}
		byMode := n.kind != symlink && n.writable() && n.isOwn(user)
		canChange = canChange && byMode && (n.uid == user || user == 0)
		if !slices.Contains(change, printable.Quote(n.path)) {
			change = append(change, printable.Quote(n.path))
		}
		if n.mode&0o020 != 0 {
			who = "go"
		}
		if e.Grade > worst.Grade {
			worst = e
		}
	}
	if worst.Grade != Unexposed && canChange {
		if worst.Grade == ExposedToSome {
			who = "g"
		}
		worst.Remedy = "chmod " + who + "-w " + strings.Join(change, " ")
	}
	return worst
}

// isOwn reports whether the inode belongs to the user or to root.
func (n inode) isOwn(user int) bool { return n.uid == user || n.uid == 0 }

// writable reports whether the mode lets others replace the file. In a sticky folder they can replace only their own.
func (n inode) writable() bool {
	return n.mode&0o022 != 0 && (n.kind != folder || n.mode&fs.ModeSticky == 0)
}

// exposure judges one inode. The result has no remedy.
func (n inode) exposure(user int) Exposure {
	everybody := n.mode&0o002 != 0
	mode := fmt.Sprintf("mode %04o", unixMode(n.mode))
	path := printable.Quote(n.path)
	switch {
	case n.kind == folder && n.writable() && everybody:
		return Exposure{Grade: ExposedToAnybody, How: fmt.Sprintf("every user may write its folder %s (%s)", path, mode)}
	case n.kind == folder && !n.isOwn(user):
		return Exposure{Grade: ExposedToSome, How: fmt.Sprintf("its folder %s belongs to uid %d", path, n.uid)}
	case n.kind == folder && n.writable():
		return Exposure{Grade: ExposedToSome, How: fmt.Sprintf("a group may write its folder %s (%s)", path, mode)}
	case n.kind == folder:
		return Exposure{}
	case !n.isOwn(user):
		return Exposure{Grade: ExposedToAnybody, How: n.foreign(user)}
	case n.kind == symlink: // the mode of a symbolic link has no effect
		return Exposure{}
	case everybody:
		return Exposure{Grade: ExposedToAnybody, How: fmt.Sprintf("every user may write it (%s)", mode)}
	case n.writable():
		return Exposure{Grade: ExposedToSome, How: fmt.Sprintf("its group may write it (%s)", mode)}
	}
	return Exposure{}
}

// foreign describes an inode that belongs to another user.
func (n inode) foreign(user int) string {
	what := "it"
	if n.kind == symlink {
		what = "the symbolic link " + printable.Quote(n.path)
	}
	if user == 0 {
		return fmt.Sprintf("%s belongs to uid %d, not to root, who runs this", what, n.uid)
	}
	return fmt.Sprintf("%s belongs to uid %d, neither to you (uid %d) nor to root", what, n.uid, user)
}

// unixMode returns the mode as chmod takes it.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// maxLinks is the number of symbolic links that wayTo follows. The kernel follows no more.
const maxLinks = 40

// wayTo returns the folder of a file and the symbolic links that lead to the file, each with its folder. end is the
// inode at the end of the way, or nil if it is not visible, as behind the links in /proc/self/fd.
func wayTo(path string) (way []inode, end fs.FileInfo) {
	for range maxLinks {
		dir, _ := filepath.Split(path) // filepath.Dir would resolve link/.. to the folder of link, not of its target
		if dir == "" {
			dir = "."
		}
		if info, err := os.Stat(dir); err == nil {
			way = append(way, inodeOf(realPath(dir), folder, info))
		}
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return way, nil
		case info.Mode()&fs.ModeSymlink == 0:
			return way, info
		}
		way = append(way, inodeOf(path, symlink, info))
		target, err := os.Readlink(path)
		if err != nil {
			return way, nil
		}
		if path = target; !filepath.IsAbs(target) {
			path = dir + string(filepath.Separator) + target
		}
	}
	return way, nil
}

// realPath returns the absolute path of a folder without symbolic links, for messages. It resolves links first, because
// filepath.Abs would resolve link/.. to the folder of link.
func realPath(dir string) string {
	for _, step := range []func(string) (string, error){filepath.EvalSymlinks, filepath.Abs, filepath.EvalSymlinks} {
		if path, err := step(dir); err == nil {
			dir = path
		}
	}
	return dir
}

// inodeOf describes an inode from its FileInfo. An unknown owner is neither the user nor root.
func inodeOf(path string, kind inodeKind, info fs.FileInfo) inode {
	n := inode{path: path, kind: kind, uid: -1, mode: info.Mode() & (fs.ModePerm | fs.ModeSticky)}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		n.uid = int(sys.Uid)
	}
	return n
}
