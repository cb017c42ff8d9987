package elastic

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
)

// Marker is a file of this machine which says that a store of a run is here, or was. One that is found by the store's successor tells it that
// agents of the one before may be alive. It outlives the process, and the container of a pod, but not the machine's boot.
type Marker struct{ file *os.File }

// markerLife is how long a marker stays that says when its store ended: longer than any keep-alive time.
const markerLife = time.Hour

// CreateMarker leaves the marker of a store that begins now, and says what is known of one before it. store names the store among all of this user on
// this machine. Where nothing can be known there is an error besides.
func CreateMarker(store string) (m *Marker, fresh FreshStore, err error) {
	now := boottime.Now()
	fresh = FreshStore{CreatedAt: now, HasPredecessor: true, PredecessorEnd: now}
	dir, err := markerDir()
	if err != nil {
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	clearMarkers(dir, now)
	path := filepath.Join(dir, "store-"+shortHash(thisMachine(host)+"\n"+store))
	if m, fresh.HasPredecessor, err = holdMarker(path); err != nil {
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	if ended, known := m.ended(); known {
		fresh.PredecessorEnd = min(now, ended)
	} // else its process was killed, at a time that nobody knows
	if err := m.file.Truncate(0); err != nil {
		return m, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	return m, fresh, nil
}

// holdMarker opens a marker, or makes it, and holds it for as long as this process lives, so that nobody clears it away.
func holdMarker(path string) (m *Marker, there bool, err error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if there = errors.Is(err, fs.ErrExist); there {
			file, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		}
		if errors.Is(err, fs.ErrNotExist) { // it was cleared away just now
			continue
		}
		if err != nil {
			return nil, there, err
		}
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH) // whoever clears has it for a moment only
		}
		mine, err1 := file.Stat()
		now, err2 := os.Lstat(path)
		switch {
		case err != nil || err1 != nil:
			_ = file.Close()
			return nil, there, errors.Join(err, err1)
		case err2 == nil && os.SameFile(mine, now):
			return &Marker{file}, there, nil
		}
		_ = file.Close() // it was cleared away before it was held
	}
}

// ended is when a marker says that its store ended.
func (m *Marker) ended() (at time.Duration, known bool) {
	text, err := io.ReadAll(io.NewSectionReader(m.file, 0, 64))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(n), err == nil
}

// write says in the marker when its store ended.
func (m *Marker) write(at time.Duration) error {
	_, err := m.file.WriteAt([]byte(strconv.FormatInt(int64(at), 10)), 0)
	return err
}

// Remove takes the marker away: none of the store's agents is left. A nil Marker has none.
func (m *Marker) Remove() error {
	if m == nil {
		return nil
	}
	return errors.Join(os.Remove(m.file.Name()), m.file.Close())
}

// End says in the marker that the store ends now, while some of its agents may be alive.
func (m *Marker) End() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.write(boottime.Now()), m.file.Close())
}

// clearMarkers removes the markers of stores that ended long ago. A store whose process was killed has left none of a time: it counts as ended now, if
// nobody holds its marker any more, and goes the next time.
func clearMarkers(dir string, now time.Duration) {
	names, _ := filepath.Glob(filepath.Join(dir, "store-*")) // the pattern is valid
	for _, name := range names {
		file, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		m := &Marker{file}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			switch ended, known := m.ended(); {
			case !known:
				_ = m.write(now)
			case now-ended > markerLife:
				_ = os.Remove(name)
			}
		}
		_ = file.Close()
	}
}

// markerDir makes the folder of this user's markers. It is in memory, so that it ends with the boot, where there is such a place.
func markerDir() (string, error) {
	for _, parent := range []string{"/dev/shm", os.TempDir()} {
		dir := filepath.Join(parent, fmt.Sprintf("elasticrun-%d", os.Geteuid()))
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			continue
		}
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Geteuid() {
			return dir, nil
		}
	}
	return "", errors.New("this user can have no folder of its own in /dev/shm or the temporary folder")
}
