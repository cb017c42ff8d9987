package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/userdir"
)

// Running is a launcher that runs.
type Running struct {
	Launcher
	UID    int // of its user
	parent string
	name   string
}

const (
	// maxEntries bounds the names that are read of one folder, maxRecord the size of a record.
	maxEntries = 10_000
	maxRecord  = 64 << 10
)

// List returns the launchers of this user that run now, or of all users, in the order of their start. It removes what
// killed launchers of this user have left behind, and records those with logs for ListEnded. It changes nothing in
// folders of others.
func (f Folders) List(allUsers bool) []Running {
	var all []Running
	for _, parent := range f {
		uids := []int{os.Geteuid()}
		if allUsers {
			uids = users(parent)
		}
		for _, uid := range uids {
			dir, err := openFolder(parent, uid)
			if err != nil {
				continue
			}
			all = append(all, dir.list(parent)...)
			_ = dir.Close()
		}
	}
	slices.SortStableFunc(all, func(a, b Running) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID), cmp.Compare(a.name, b.name))
	})
	return all
}

func (f *folder) list(parent string) []Running {
	names, _ := f.Readdirnames(maxEntries)
	var all []Running
	for _, name := range names {
		if !strings.HasPrefix(name, recordPrefix) || strings.Contains(name, ".") {
			continue
		}
		if l, ok := f.read(name); ok {
			all = append(all, Running{Launcher: l, UID: f.uid, parent: parent, name: name})
		}
	}
	return all
}

// read returns the record of a launcher that runs.
func (f *folder) read(name string) (l Launcher, ok bool) {
	file, err := os.OpenFile(f.path(name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return l, false
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return l, false
	}
	if stale(file) {
		if f.uid == os.Geteuid() {
			f.keepKilled(name, file)
			f.remove(name)
		}
		return l, false
	}
	if info, err := os.Lstat(f.path(name + socketSuffix)); err != nil || info.Mode().Type() != os.ModeSocket {
		return l, false // the launcher is being registered
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	return l, err == nil && json.Unmarshal(text, &l) == nil
}

// stale reports whether no launcher holds the lock of a record. If so, it keeps a shared lock until file is closed: no
// launcher can lock the record meanwhile, and other calls of List do not take this process for its launcher.
func stale(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// Dial connects to a launcher. It makes sure that the process at the other end belongs to the launcher's user.
func (r Running) Dial(ctx context.Context) (net.Conn, error) {
	dir, err := openFolder(r.parent, r.UID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	c, err := new(net.Dialer).DialContext(ctx, "unix", dir.path(r.name+socketSuffix))
	if err != nil {
		if inner, ok := errors.AsType[*net.OpError](err); ok {
			err = inner.Err // its address means nothing to people
		}
		return nil, err
	}
	uid, err := userdir.PeerUID(c.(*net.UnixConn))
	if err == nil && uid != r.UID {
		err = fmt.Errorf("the socket in the folder of user %d belongs to user %d", r.UID, uid)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}
