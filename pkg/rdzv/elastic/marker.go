package elastic

import (
	"errors"
	"fmt"
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
type Marker struct{ path string }

// LeaveMarker leaves the marker of a store that begins now, and says what is known of one before it. store names the store among all of this user on
// this machine. Where nothing can be known there is an error besides.
func LeaveMarker(store string) (m *Marker, fresh Fresh, err error) {
	now := boottime.Now()
	fresh = Fresh{Since: now, Predecessor: true, Ended: now}
	dir, err := markerDir()
	if err != nil {
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	m = &Marker{filepath.Join(dir, "store-"+shortHash(thisMachine(host)+"\n"+store))}
	text, err := os.ReadFile(m.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fresh.Predecessor = false
	case err != nil:
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	default:
		if ended, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			fresh.Ended = min(now, time.Duration(ended))
		} // else its process was killed, at a time that nobody knows
	}
	if err := m.write(""); err != nil {
		return nil, fresh, fmt.Errorf("leave a marker: %w", err)
	}
	return m, fresh, nil
}

func (m *Marker) write(text string) error { return os.WriteFile(m.path, []byte(text), 0o600) }

// Remove takes the marker away: none of the store's agents is left. A nil Marker has none.
func (m *Marker) Remove() error {
	if m == nil {
		return nil
	}
	return os.Remove(m.path)
}

// End says in the marker that the store ends now, while some of its agents may be alive.
func (m *Marker) End() error {
	if m == nil {
		return nil
	}
	return m.write(strconv.FormatInt(int64(boottime.Now()), 10))
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
