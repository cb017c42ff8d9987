package jobs

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/userdir"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Ended is what is recorded of a launcher that has ended, so that its logs are found later.
type Ended struct {
	Launcher
	// At is when it ended. It is zero if the launcher was killed, or has not recorded its end for another reason.
	At time.Time `json:"ended,omitzero"`
	// ExitCode and Reason are those of the launcher's report.
	ExitCode int    `json:"exit_code"`
	Reason   string `json:"reason,omitempty"`
	// Summary says in one line what went wrong; it may be empty.
	Summary string `json:"summary,omitempty"`
}

const (
	endedPrefix = "ended-"
	// maxEnded is how many launchers that have ended are remembered.
	maxEnded = 20
)

// RecordEnd records a launcher of this user that ends, and removes all but the 20 newest records.
func (f Folders) RecordEnd(e Ended) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	dir, err := f.makeFolder()
	if err != nil {
		return err
	}
	defer dir.Close()
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	if err := dir.write(endedName(hex.EncodeToString(id[:])), text); err != nil {
		return err
	}
	dir.forget()
	return nil
}

// endedName returns a name for a new record, which sorts after those of earlier records.
func endedName(id string) string {
	return fmt.Sprintf("%s%016x-%s", endedPrefix, time.Now().UnixNano(), id)
}

// write makes a file appear with its whole text.
func (f *folder) write(name string, text []byte) error {
	unready := f.path(name + newSuffix)
	file, err := os.OpenFile(unready, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = cmp.Or(err, file.Close())
	if err == nil {
		err = os.Rename(unready, f.path(name))
	}
	if err != nil {
		_ = os.Remove(unready)
	}
	return err
}

// keepKilled turns the record of a launcher that was killed into one of its end, if it has written logs.
func (f *folder) keepKilled(name string, file *os.File) {
	var l Launcher
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err == nil && json.Unmarshal(text, &l) == nil && workerlog.HasLogs(l.LogDir) {
		_ = os.Rename(f.path(name), f.path(endedName(strings.TrimPrefix(name, recordPrefix)))) // else it is removed
		f.forget()
	}
}

// forget removes all but the maxEnded newest records. A launcher that was killed while it wrote a record leaves an
// unfinished one, which counts as a record and so is removed in the end.
func (f *folder) forget() {
	names := f.endedNames()
	for _, name := range names[min(len(names), maxEnded):] {
		_ = os.Remove(f.path(name)) // another launcher may have removed it
	}
}

// endedNames lists the names of the records of launchers that have ended, the newest first.
func (f *folder) endedNames() []string {
	var names []string
	entries, _ := os.ReadDir(f.path("."))
	for _, e := range entries[:min(len(entries), maxEntries)] {
		if strings.HasPrefix(e.Name(), endedPrefix) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names
}

// ListEnded returns the launchers of this user that have ended and are remembered, the one that started last at the
// front.
func (f Folders) ListEnded() []Ended {
	_ = f.List(false) // which finds those that were killed
	var all []Ended
	for _, parent := range f {
		dir, err := openFolder(parent, os.Geteuid())
		if err != nil {
			continue
		}
		for _, name := range dir.endedNames() {
			if e, ok := dir.readEnded(name); ok {
				all = append(all, e)
			}
		}
		_ = dir.Close()
	}
	slices.SortStableFunc(all, func(a, b Ended) int { return b.Started.Compare(a.Started) })
	return all
}

// readEnded reads the record of a launcher that has ended. It follows no link.
func (f *folder) readEnded(name string) (e Ended, ok bool) {
	if strings.HasSuffix(name, newSuffix) {
		return e, false
	}
	file, err := os.OpenFile(f.path(name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return e, false
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || userdir.Owner(info) != f.uid {
		return e, false
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	return e, err == nil && json.Unmarshal(text, &e) == nil && e.RunID != ""
}
