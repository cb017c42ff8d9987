package logview

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// changes reports that something in the watched folders of a run has changed. A nil *changes watches nothing, and its
// grown always reports true.
type changes struct {
	watcher *fsnotify.Watcher
	seen    chan struct{} // holds one value after any number of changes
	created atomic.Bool   // a file or folder was created since the last call of grown
	done    chan struct{}
}

// ErrCannotFollow means that the kernel does not let this user watch another folder.
var ErrCannotFollow = errors.New("cannot follow the logs")

func cannotFollow(err error) error {
	return fmt.Errorf("%w: %w; raise fs.inotify.max_user_watches and max_user_instances, or leave out --follow",
		ErrCannotFollow, err)
}

// watchChanges begins to watch a folder.
func watchChanges(path string) (*changes, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, cannotFollow(err)
	}
	c := &changes{watcher: watcher, seen: make(chan struct{}, 1), done: make(chan struct{})}
	go c.run()
	if err := c.watch(path); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// watch adds a folder. It ignores a folder that has been removed.
func (c *changes) watch(path string) error {
	if c == nil {
		return nil
	}
	if err := ignoreMissing(c.watcher.Add(path)); err != nil {
		return cannotFollow(err)
	}
	return nil
}

// run drains events until the watcher is closed, so that the kernel's queue never fills up.
func (c *changes) run() {
	defer close(c.done)
	for {
		e, open := fsnotify.Event{Op: fsnotify.Create}, false
		select {
		case e, open = <-c.watcher.Events:
		case _, open = <-c.watcher.Errors: // events were lost, so something has changed
		}
		if !open {
			return
		}
		if e.Has(fsnotify.Create) {
			c.created.Store(true)
		}
		select {
		case c.seen <- struct{}{}:
		default:
		}
	}
}

// grown reports whether files or folders may have been created since the last call.
func (c *changes) grown() bool { return c == nil || c.created.Swap(false) }

func (c *changes) close() {
	_ = c.watcher.Close()
	<-c.done
}
