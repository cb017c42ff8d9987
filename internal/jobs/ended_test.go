package jobs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// endedIDs returns the run ids of the launchers that have ended, as ListEnded orders them.
func endedIDs(f Folders) (ids []string) {
	for _, e := range f.ListEnded() {
		ids = append(ids, e.RunID)
	}
	return ids
}

// TestRecordEnd checks that the last launchers that ended are remembered, the one that started last at the front.
func TestRecordEnd(t *testing.T) {
	f := Folders{t.TempDir(), t.TempDir()}
	if got := f.ListEnded(); got != nil {
		t.Errorf("before the first: %v", got)
	}
	first := Ended{
		Launcher: Launcher{RunID: "a", Script: "train.py", LogDir: "/l/a_12345678", PID: 7, Started: time.Unix(100, 0).UTC()},
		At:       time.Unix(200, 0).UTC(), ExitCode: 1, Reason: "worker_failed", Summary: "rank 2: boom",
	}
	must(t, f.RecordEnd(first))
	if diff := cmp.Diff([]Ended{first}, f.ListEnded()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var want []string
	for i := range maxEnded {
		id := fmt.Sprint("run", i)
		must(t, f.RecordEnd(Ended{Launcher: Launcher{RunID: id, Started: time.Unix(int64(200+i), 0)}}))
		want = append([]string{id}, want...)
	}
	if diff := cmp.Diff(want, endedIDs(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, err := filepath.Glob(filepath.Join(userFolder(f), "*"))
	must(t, err)
	for _, path := range all {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if got := f.List(false); got != nil {
		t.Errorf("running: %v", got)
	}
}

// TestKilledIsRemembered checks that a launcher that was killed is remembered if it has logs.
func TestKilledIsRemembered(t *testing.T) {
	f, logs := Folders{t.TempDir()}, t.TempDir()
	worker := filepath.Join(logs, "attempt_0", "0")
	must(t, errors.Join(os.MkdirAll(worker, 0o700), os.WriteFile(filepath.Join(worker, "stdout.log"), nil, 0o600)))
	for _, l := range []Launcher{
		{RunID: "logs", LogDir: logs}, {RunID: "no logs", LogDir: t.TempDir()}, {RunID: "lives", LogDir: logs},
	} {
		e := register(t, f, l)
		t.Cleanup(func() { _ = e.Close() })
		if l.RunID != "lives" {
			_ = e.record.Close()
			_ = e.UnixListener.Close()
		}
	}
	for range 2 {
		got := f.ListEnded()
		if len(got) != 1 || got[0].RunID != "logs" || !got[0].At.IsZero() {
			t.Errorf("%+v", got)
		}
	}
	if got := listed(f, false); len(got) != 1 || got[0].RunID != "lives" {
		t.Errorf("running: %v", got)
	}
}

// TestEndedOfOthers checks that only this user's own records count, and that no link is followed.
func TestEndedOfOthers(t *testing.T) {
	f := Folders{t.TempDir(), t.TempDir()}
	must(t, f.RecordEnd(Ended{Launcher: Launcher{RunID: "own"}}))
	const planted = `{"run_id": "planted"}`
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, errors.Join(
		os.WriteFile(outside, []byte(planted), 0o600),
		os.Symlink(outside, filepath.Join(userFolder(f), endedPrefix+"link")),
		syscall.Mkfifo(filepath.Join(userFolder(f), endedPrefix+"fifo"), 0o600),
		os.Mkdir(filepath.Join(userFolder(f), endedPrefix+"folder"), 0o700),
		os.WriteFile(filepath.Join(userFolder(f), endedPrefix+"unready"+newSuffix), []byte(planted), 0o600),
		os.WriteFile(filepath.Join(userFolder(f), endedPrefix+"garbage"), []byte("{"), 0o600),
	))
	// The folder in the second place is one that others can write.
	theirs := userFolder(f[1:])
	must(t, errors.Join(
		os.Mkdir(theirs, 0o700), os.WriteFile(filepath.Join(theirs, endedPrefix+"1"), []byte(planted), 0o600), os.Chmod(theirs, 0o777),
	))
	if os.Geteuid() == 0 {
		chowned := filepath.Join(userFolder(f), endedPrefix+"2")
		must(t, errors.Join(os.WriteFile(chowned, []byte(planted), 0o600), os.Chown(chowned, 4711, 4711)))
	}
	if diff := cmp.Diff([]string{"own"}, endedIDs(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := f[1:].RecordEnd(Ended{Launcher: Launcher{RunID: "x"}}); err == nil {
		t.Error("recorded in a folder that others can write")
	}
}
