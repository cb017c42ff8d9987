package machine

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
	"github.com/elasticrun/elasticrun/internal/userdir"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Marker is a file on this machine which says that a store of a run is here, or was. From it the store's successor
// learns that agents of the earlier store may be alive. It outlives the process and the container of a pod, but not the
// machine's boot.
type Marker struct{ file *os.File }

// markerLife is how long a marker stays that says when its store ended. It is longer than any session TTL.
const markerLife = time.Hour

// CreateMarker creates the marker of a store that begins now, and returns what is known of an earlier one. store names
// the store among all of this user on this machine. If nothing can be known, it also returns an error, and fresh
// assumes an earlier store that has just ended.
func CreateMarker(store string) (m *Marker, fresh rounds.FreshStore, err error) {
	dir, err := markerDir()
	if err != nil {
		return nil, unknownStore(), fmt.Errorf("create the marker of the store: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, unknownStore(), fmt.Errorf("create the marker of the store: %w", err)
	}
	return CreateMarkerIn(dir, shortHash(thisMachine(host)+"\n"+store))
}

// unknownStore describes a store that begins now, where nothing is known of an earlier one.
func unknownStore() rounds.FreshStore {
	now := boottime.Now()
	return rounds.FreshStore{CreatedAt: now, HasPredecessor: true, PredecessorEnd: now}
}

// CreateMarkerIn is CreateMarker in a folder of markers. name names the store in it.
func CreateMarkerIn(dir, name string) (m *Marker, fresh rounds.FreshStore, err error) {
	fresh = unknownStore()
	clearMarkers(dir, fresh.CreatedAt)
	path := filepath.Join(dir, "store-"+name)
	if m, fresh.HasPredecessor, err = holdMarker(path); err != nil {
		fresh.HasPredecessor = true
		return nil, fresh, fmt.Errorf("create the marker of the store: %w", err)
	}
	if ended, known := m.ended(); known {
		fresh.PredecessorEnd = min(fresh.CreatedAt, ended)
	} // otherwise its process was killed, and the time is unknown
	if err := m.file.Truncate(0); err != nil {
		return m, fresh, fmt.Errorf("create the marker of the store: %w", err)
	}
	return m, fresh, nil
}

// holdMarker opens or creates a marker and locks it for as long as this process lives, so that clearMarkers leaves it
// alone.
func holdMarker(path string) (m *Marker, there bool, err error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if there = errors.Is(err, fs.ErrExist); there {
			file, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		}
		if errors.Is(err, fs.ErrNotExist) { // clearMarkers has just removed it
			continue
		}
		if err != nil {
			return nil, there, err
		}
		for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH) // clearMarkers locks it only for a moment
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
		_ = file.Close() // clearMarkers removed it before it was locked
	}
}

// ended returns when a marker says that its store ended.
func (m *Marker) ended() (at time.Duration, known bool) {
	text, err := io.ReadAll(io.NewSectionReader(m.file, 0, 64))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Duration(n), err == nil
}

// write records in the marker when its store ended.
func (m *Marker) write(at time.Duration) error {
	_, err := m.file.WriteAt([]byte(strconv.FormatInt(int64(at), 10)), 0)
	return err
}

// Remove removes the marker: every agent of the store has ended. A nil Marker has no file.
func (m *Marker) Remove() error {
	if m == nil {
		return nil
	}
	return errors.Join(os.Remove(m.file.Name()), m.file.Close())
}

// End records in the marker that the store ends now, while some of its agents may be alive.
func (m *Marker) End() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.write(boottime.Now()), m.file.Close())
}

// clearMarkers removes the markers of stores that ended long ago. If a store's process was killed, its marker has no
// time and nobody holds it. Such a store counts as ended now, and a later call removes its marker.
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

// markerDir creates the folder of this user's markers. It is in memory, where the system offers that, so that the
// folder ends with the boot.
func markerDir() (string, error) {
	for _, parent := range []string{"/dev/shm", os.TempDir()} {
		dir := filepath.Join(parent, userdir.Name(os.Geteuid()))
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
	return "", errors.New("this user cannot create a folder of its own in /dev/shm or in the temporary folder")
}

// GroupFile returns the name of the file beside the marker that records which agents can keep the store. The name does
// not begin as markers' names do, because earlier versions of elasticrun write into all files that do.
func (m *Marker) GroupFile() string { return m.beside("group-") }

// HeirsFile returns the name of the file that becomes the group file if a guard hands over; see elastic.Heirs.
func (m *Marker) HeirsFile() string { return m.beside("heirs-") }

func (m *Marker) beside(prefix string) string {
	dir, name := filepath.Split(m.file.Name())
	return filepath.Join(dir, prefix+strings.TrimPrefix(name, "store-"))
}
