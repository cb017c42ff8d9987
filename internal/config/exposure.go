package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// exposureGrade says who else than the user and root could have written a file.
type exposureGrade int

// The grades, in their order.
const (
	unexposed        exposureGrade = iota
	exposedToSome                  // a group, or the owner of a folder on the way
	exposedToAnybody               // every user, or the file belongs to another user
)

// exposure says how others could have written a file.
type exposure struct {
	grade exposureGrade
	// how is a clause for people: "its group may write it (mode 0664)". Empty for unexposed.
	how string
	// remedy is the command that ends it; empty if the user has none.
	remedy string
}

// refuseFile is the problem of a file that is not used.
func (e exposure) refuseFile(path string) string {
	remedy := ""
	if e.remedy != "" {
		remedy = e.remedy + ", or "
	}
	return fmt.Sprintf("%s, so this config file is not used: %sname it with --config=%s to use it all the same", e.how, remedy, shown(path))
}

// refuseKey is the problem of a key that an exposed file must not have; what says what its value is.
func (e exposure) refuseKey(what, flag string) string {
	remedy := ""
	if e.remedy != "" {
		remedy = e.remedy + ", or "
	}
	return fmt.Sprintf("this config file may not name %s, since %s: %sgive --%s on the command line", what, e.how, remedy, flag)
}

// inode is a file, symbolic link or folder on the way to a config file.
type inode struct {
	path string
	kind inodeKind
	uid  int
	mode fs.FileMode // permissions and the sticky bit
}

type inodeKind int

const (
	theFile inodeKind = iota
	aLink             // a symbolic link, which its owner and those who may write its folder decide
	aFolder           // one that holds the file or a link
)

// expose judges the inodes on the way to a file for a user.
func expose(way []inode, user int) exposure {
	var worst exposure
	var change []string // what chmod would have to change
	who, canChange := "o", true
	for _, n := range way {
		e := n.exposedTo(user)
		if e.grade == unexposed {
			continue
		}
		byMode := n.kind != aLink && n.writable() && n.isOf(user)
		canChange = canChange && byMode && (n.uid == user || user == 0)
		if !slices.Contains(change, shown(n.path)) {
			change = append(change, shown(n.path))
		}
		if n.mode&0o020 != 0 {
			who = "go"
		}
		if e.grade > worst.grade {
			worst = e
		}
	}
	if worst.grade != unexposed && canChange {
		if worst.grade == exposedToSome {
			who = "g"
		}
		worst.remedy = "chmod " + who + "-w " + strings.Join(change, " ")
	}
	return worst
}

// isOf reports whether the inode belongs to the user or to root.
func (n inode) isOf(user int) bool { return n.uid == user || n.uid == 0 }

// writable reports whether its mode lets others write it. In a sticky folder they cannot replace what is not theirs.
func (n inode) writable() bool {
	return n.mode&0o022 != 0 && (n.kind != aFolder || n.mode&fs.ModeSticky == 0)
}

// exposedTo judges one inode, without a remedy.
func (n inode) exposedTo(user int) exposure {
	everybody := n.mode&0o002 != 0
	mode := fmt.Sprintf("mode %04o", unixMode(n.mode))
	switch {
	case n.kind == aFolder && n.writable() && everybody:
		return exposure{grade: exposedToAnybody, how: fmt.Sprintf("every user may write its folder %s (%s)", shown(n.path), mode)}
	case n.kind == aFolder && !n.isOf(user):
		return exposure{grade: exposedToSome, how: fmt.Sprintf("its folder %s belongs to uid %d", shown(n.path), n.uid)}
	case n.kind == aFolder && n.writable():
		return exposure{grade: exposedToSome, how: fmt.Sprintf("a group may write its folder %s (%s)", shown(n.path), mode)}
	case n.kind == aFolder:
		return exposure{}
	case !n.isOf(user):
		return exposure{grade: exposedToAnybody, how: n.foreign(user)}
	case n.kind == aLink: // its mode means nothing
		return exposure{}
	case everybody:
		return exposure{grade: exposedToAnybody, how: fmt.Sprintf("every user may write it (%s)", mode)}
	case n.writable():
		return exposure{grade: exposedToSome, how: fmt.Sprintf("its group may write it (%s)", mode)}
	}
	return exposure{}
}

// foreign says whose the inode is.
func (n inode) foreign(user int) string {
	what := "it"
	if n.kind == aLink {
		what = "the symbolic link " + shown(n.path)
	}
	if user == 0 {
		return fmt.Sprintf("%s belongs to uid %d, not to root, who runs this", what, n.uid)
	}
	return fmt.Sprintf("%s belongs to uid %d, neither to you (uid %d) nor to root", what, n.uid, user)
}

// unixMode is the mode as chmod takes it.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// maxLinks is how many symbolic links are followed; the kernel follows no more.
const maxLinks = 40

// wayTo returns the folder of a file, and the symbolic links that lead to it, each with its folder; end is what they lead to, or
// nil if that cannot be seen, as behind the links in /proc/self/fd.
func wayTo(path string) (way []inode, end fs.FileInfo) {
	for range maxLinks {
		dir, _ := filepath.Split(path) // Dir would take .. behind a link for what stands before the link
		if dir == "" {
			dir = "."
		}
		if info, err := os.Stat(dir); err == nil {
			way = append(way, inodeOf(realPath(dir), aFolder, info))
		}
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return way, nil
		case info.Mode()&fs.ModeSymlink == 0:
			return way, info
		}
		way = append(way, inodeOf(path, aLink, info))
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

// realPath is the absolute path of a folder without symbolic links, for messages. Links go first: Abs would take .. behind a
// link for what stands before it.
func realPath(dir string) string {
	for _, step := range []func(string) (string, error){filepath.EvalSymlinks, filepath.Abs, filepath.EvalSymlinks} {
		if path, err := step(dir); err == nil {
			dir = path
		}
	}
	return dir
}

// inodeOf is an inode by what the system says of it. An owner that is not known is nobody's.
func inodeOf(path string, kind inodeKind, info fs.FileInfo) inode {
	n := inode{path: path, kind: kind, uid: -1, mode: info.Mode() & (fs.ModePerm | fs.ModeSticky)}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		n.uid = int(sys.Uid)
	}
	return n
}
