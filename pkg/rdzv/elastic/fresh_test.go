package elastic

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/coord"
)

// A store that has forgotten the sessions of the one before it decides no round while workers of that one may be alive.
func TestFirstRoundInAFreshStore(t *testing.T) {
	sec := time.Second
	at := func(d time.Duration) optionalTime { return optionalTime{d, true} }
	ready := func(earlier bool) Report {
		return Report{
			Job:   Job{Min: 1, Max: 2, LastCall: 2 * sec, JoinTimeout: 100 * sec, TTL: 15 * sec, Rejoin: 40 * sec, ResultTTL: sec},
			Phase: Ready, Earlier: earlier,
		}
	}
	for _, tt := range []struct {
		name     string
		instance storeHistory
		agents   []Report // one joins after each second
		want     time.Duration
	}{
		{name: "the store keeps its sessions", agents: []Report{ready(false)}, want: 3 * sec},
		{name: "all nodes come to a store without a predecessor", instance: storeHistory{createdAt: at(0)}, agents: []Report{ready(false), ready(false)}, want: 2 * sec},
		{name: "a node is missing: it may be cut off in an earlier store", instance: storeHistory{createdAt: at(0)}, agents: []Report{ready(false)}, want: 15 * sec},
		{name: "a node is missing in a store that is old enough", instance: storeHistory{createdAt: at(-60 * sec)}, agents: []Report{ready(false)}, want: 3 * sec},
		{
			name: "the predecessor was killed", instance: storeHistory{createdAt: at(0), predecessorEnd: at(0)},
			agents: []Report{ready(false), ready(false)}, want: 15 * sec,
		},
		{
			name: "the predecessor ended 10 s before", instance: storeHistory{createdAt: at(0), predecessorEnd: at(-10 * sec)},
			agents: []Report{ready(false), ready(false)}, want: 5 * sec,
		},
		{
			name: "an agent knows of a predecessor", instance: storeHistory{createdAt: at(0)},
			agents: []Report{ready(true), ready(false)}, want: 15 * sec,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLeader(1, savedState{storeHistory: tt.instance}, 0)
			for i, r := range tt.agents {
				now := time.Duration(i+1) * sec
				r.Node = Node{Host: fmt.Sprint("n", i), Identity: fmt.Sprint("n", i), Hint: -1, Nproc: 1}
				l.observe(now, coord.SessionID(fmt.Sprint("s", i)), coord.Revision(i+1), &r)
				if i < len(tt.agents)-1 {
					l.decide(now)
				}
			}
			for now := time.Duration(len(tt.agents)) * sec; ; {
				_, wake, timed := l.decide(now)
				if l.hasRound {
					if now != tt.want {
						t.Errorf("the round is decided after %v, want %v", now, tt.want)
					}
					return
				}
				if !timed || wake > 60*sec {
					t.Fatalf("no round is decided: it waits until %v (%v)", wake, timed)
				}
				now = wake
			}
		})
	}
}

// An agent that knows of an earlier store comes when a round runs already: that ends, and the next one waits.
func TestAgentOfAnEarlierStoreComesLate(t *testing.T) {
	sec := time.Second
	job := Job{Min: 1, Max: 1, JoinTimeout: 100 * sec, TTL: 15 * sec, Rejoin: 40 * sec, ResultTTL: sec}
	l := newLeader(1, savedState{storeHistory: storeHistory{createdAt: optionalTime{0, true}}}, 0)
	report := func(name string, r Report) {
		r.Job, r.Node = job, Node{Host: name, Identity: name, Hint: -1, Nproc: 1}
		l.observe(2*sec, coord.SessionID(name), 1, &r)
		l.decide(2 * sec)
	}
	report("a", Report{Phase: Ready})
	if !l.hasRound {
		t.Fatal("the round is not decided")
	}
	report("b", Report{Phase: Ready, Earlier: true})
	if l.state != halting {
		t.Fatal("the round goes on")
	}
	report("a", Report{Phase: Ready, Fence: l.fence()})
	if l.state != forming || !l.mustWaitForLeases(14*sec, true) || l.mustWaitForLeases(15*sec, true) {
		t.Errorf("state %d", l.state)
	}
}

func TestMarker(t *testing.T) {
	store := fmt.Sprintf("%s %d", t.Name(), os.Getpid())
	leave := func(what, store string, predecessor bool) (*Marker, FreshStore) {
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
	_ = first.file.Close() // it was killed
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

// Markers of killed stores do not pile up, and none goes whose store is there, or ended a moment ago.
func TestClearMarkers(t *testing.T) {
	dir := t.TempDir()
	now := 100 * time.Hour
	path := func(name string) string { return filepath.Join(dir, "store-"+name) }
	for name, text := range map[string]string{
		"here": "", "killed": "", "just ended": fmt.Sprint(int64(now - time.Minute)), "ended": fmt.Sprint(int64(now - 2*markerLife)),
	} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here, err := os.Open(path("here"))
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := syscall.Flock(int(here.Fd()), syscall.LOCK_SH); err != nil {
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
	if got := left(); got != "store-here, store-just ended, store-killed" {
		t.Errorf("left: %s", got)
	}
	clearMarkers(dir, now+2*markerLife)
	if got := left(); got != "store-here" {
		t.Errorf("left later: %s", got)
	}
}
