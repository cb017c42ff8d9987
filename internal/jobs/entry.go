package jobs

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/userdir"
)

// Launcher is what is recorded of a launcher when it is registered.
type Launcher struct {
	RunID  string `json:"run_id"`
	Script string `json:"script"`
	// Backend and Endpoint are where the job's nodes meet; Endpoint is empty for a job of one node.
	Backend  string `json:"rdzv_backend"`
	Endpoint string `json:"rdzv_endpoint,omitempty"`
	// SchedulerJob is the scheduler's job in which the launcher runs, such as "slurm 12"; empty for none.
	SchedulerJob string `json:"scheduler_job,omitempty"`
	// Dir is the working directory in which the launcher was started, empty if unknown.
	Dir string `json:"dir,omitempty"`
	// LogDir is the folder of the run's logs, empty if it has none.
	LogDir string `json:"log_dir,omitempty"`
	// PID is the process that the user started.
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// The names of a registration's files. Each registration has a random name, so that none can be mistaken for an earlier
// one.
const (
	recordPrefix = "job-"
	socketSuffix = ".sock"
	newSuffix    = ".new" // a socket that does not listen yet
)

// Entry is the registration of this process. It is a net.Listener that serves this user and root alone.
type Entry struct {
	*net.UnixListener
	dir    *folder
	name   string
	record *os.File // locked
}

// Register registers a launcher until the Entry is closed or this process ends.
func (f Folders) Register(l Launcher) (*Entry, error) {
	dir, err := f.makeFolder()
	if err != nil {
		return nil, err
	}
	e := &Entry{dir: dir}
	if err = e.hold(); err == nil {
		if err = e.publish(l); err != nil {
			e.remove()
			_ = e.record.Close()
		}
	}
	if err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("register the job in %s: %w", dir.Name(), err)
	}
	return e, nil
}

// hold creates the record and locks it. List may remove a new record in the moment before it is locked.
func (e *Entry) hold() error {
	for {
		var id [8]byte
		_, _ = rand.Read(id[:]) // it never fails
		e.name = recordPrefix + hex.EncodeToString(id[:])
		path := e.dir.path(e.name)
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			mine, err1 := file.Stat()
			now, err2 := os.Lstat(path)
			if err1 == nil && err2 == nil && os.SameFile(mine, now) {
				e.record = file
				return nil
			}
		}
		_ = os.Remove(path) // it may be gone already
		_ = file.Close()
	}
}

// publish writes the record and makes the socket appear under its name. The socket listens by then.
func (e *Entry) publish(l Launcher) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := e.record.Write(text); err != nil {
		return err
	}
	unready := e.dir.path(e.name + newSuffix)
	if e.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: unready, Net: "unix"}); err != nil {
		return err
	}
	e.SetUnlinkOnClose(false) // its name changes
	err = os.Chmod(unready, 0o600)
	if err == nil {
		err = os.Rename(unready, e.dir.path(e.name+socketSuffix))
	}
	if err != nil {
		_ = e.UnixListener.Close()
	}
	return err
}

// Accept implements net.Listener. It closes connections of other users than this one and root.
func (e *Entry) Accept() (net.Conn, error) {
	for {
		c, err := e.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := userdir.PeerUID(c); err == nil && userdir.Trusted(uid) {
			return c, nil
		}
		_ = c.Close()
	}
}

// Close implements net.Listener, and ends the registration.
func (e *Entry) Close() error {
	e.remove()
	return errors.Join(e.UnixListener.Close(), e.record.Close(), e.dir.Close())
}

func (e *Entry) remove() { e.dir.remove(e.name) }

// remove removes the files of a registration, of which this process holds the lock. The record is the last.
func (f *folder) remove(name string) {
	for _, suffix := range []string{newSuffix, socketSuffix, ""} {
		_ = os.Remove(f.path(name + suffix)) // it need not be there
	}
}
