package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// TestMarker checks what a store learns from its predecessor's marker, however the predecessor ended.
func TestMarker(t *testing.T) {
	store := fmt.Sprintf("%s %d", t.Name(), os.Getpid())
	leave := func(what, store string, predecessor bool) (*Marker, rounds.FreshStore) {
		t.Helper()
		m, fresh, err := CreateMarker(store)
		if err != nil || fresh.HasPredecessor != predecessor || fresh.PredecessorEnd > fresh.CreatedAt {
			t.Fatalf("%s: %+v, %v", what, fresh, err)
		}
		return m, fresh
	}
	first, _ := leave("the first", store, false)
	if info, err := os.Stat(filepath.Dir(first.file.Name())); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	_ = first.file.Close() // as if it were killed
	killed := boottime.Now()
	second, fresh := leave("after a death", store, true)
	if fresh.PredecessorEnd < killed {
		t.Errorf("it ended at %v, but was there at %v", fresh.PredecessorEnd, killed)
	}
	ended := boottime.Now()
	if err := second.End(); err != nil {
		t.Fatal(err)
	}
	third, fresh := leave("after an end", store, true)
	if fresh.PredecessorEnd < ended {
		t.Errorf("it ended at %v: %+v", ended, fresh)
	}
	if err := third.Remove(); err != nil {
		t.Fatal(err)
	}
	last, _ := leave("after an end that all agents have seen", store, false)
	other, _ := leave("another store", store+"x", false)
	for _, m := range []*Marker{last, other} {
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	}
	var none *Marker
	if err := none.End(); err != nil || none.Remove() != nil {
		t.Error("a store without a marker cannot end")
	}
}

// TestClearMarkers checks that markers of killed stores are removed in time, and that none is removed whose store runs
// or has just ended.
func TestClearMarkers(t *testing.T) {
	dir := t.TempDir()
	now := 100 * time.Hour
	path := func(name string) string { return filepath.Join(dir, "store-"+name) }
	for name, text := range map[string]string{
		"running": "", "killed": "",
		"just ended": fmt.Sprint(int64(now - time.Minute)), "ended": fmt.Sprint(int64(now - 2*markerLife)),
	} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running, err := os.Open(path("running"))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if err := syscall.Flock(int(running.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	left := func() string {
		names, err := filepath.Glob(path("*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return strings.Join(names, ", ")
	}
	clearMarkers(dir, now)
	if got := left(); got != "store-just ended, store-killed, store-running" {
		t.Errorf("left: %s", got)
	}
	clearMarkers(dir, now+2*markerLife)
	if got := left(); got != "store-running" {
		t.Errorf("left later: %s", got)
	}
}
