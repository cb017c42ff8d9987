package membership

import (
	"context"
	"slices"
	"sync"
)

// View is who is in a dynamic group, as one member knows it. Its members belong to the caller, but for what their records point to.
type View struct {
	// Version counts the changes of the group. It is 0 before the member has joined.
	Version int64
	// Members are in the order of their ids.
	Members []Record
	// Changed is closed when there is a newer view.
	Changed <-chan struct{}
}

// board holds the newest roster that a member knows of, and those who wait for it.
type tracker struct {
	mu        sync.Mutex
	newest    snapshot
	changed   chan struct{}
	interrupt context.CancelFunc // interrupts the follower, so that it reads the log anew
	err       error
	done      chan struct{} // closed once now is the last
}

func newTracker() *tracker { return &tracker{changed: make(chan struct{}), done: make(chan struct{})} }

// show makes r the view, unless there is a newer one.
func (t *tracker) publish(r snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Version <= t.newest.Version {
		return
	}
	t.newest = r
	close(t.changed)
	t.changed = make(chan struct{})
}

// end says that there will be no other view, and why; nil where the member wanted that.
func (t *tracker) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.done:
	default:
		t.err = err
		close(t.done)
	}
}

func (t *tracker) current() snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest
}

func (t *tracker) view() View {
	t.mu.Lock()
	defer t.mu.Unlock()
	return View{Version: t.newest.Version, Members: slices.Clone(t.newest.Members), Changed: t.changed}
}

func (t *tracker) endErr() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// follow tells how to interrupt the wait for the next entry, which is on from now on.
func (t *tracker) setInterrupt(interrupt context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt = interrupt
}

// behind tells whether the roster is older than version, with a channel that the next one closes. Where it is so much
// older that the entry after it may be deleted, the follower is sent to read the log anew.
func (t *tracker) behind(version int64) (<-chan struct{}, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest.Version > 0 && version-t.newest.Version >= keptEntries && t.interrupt != nil {
		t.interrupt()
	}
	return t.changed, t.newest.Version < version
}

// reach waits for a view of at least version. After the end there is none.
func (t *tracker) waitVersion(ctx context.Context, version int64) error {
	for {
		select {
		case <-t.done:
			if err := t.endErr(); err != nil {
				return err
			}
			return ErrShutdown
		default:
		}
		changed, behind := t.behind(version)
		if !behind {
			return nil
		}
		select {
		case <-changed:
		case <-t.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
