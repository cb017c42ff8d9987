package membership

import (
	"context"
	"slices"
	"sync"
)

// View is the membership of a dynamic group as one member knows it. The caller owns the slice Members, but not what the
// records point to.
type View struct {
	// Version counts the changes of the group. It is 0 before the member has joined.
	Version int64
	// Members are in ascending order of their ids.
	Members []Record
	// Changed is closed when there is a newer view.
	Changed <-chan struct{}
}

// tracker holds the newest snapshot that a member knows, and wakes those who wait for a newer one.
type tracker struct {
	mu        sync.Mutex
	newest    snapshot
	changed   chan struct{}
	interrupt context.CancelFunc // ends the follower's wait, so that it reads the log again
	err       error
	done      chan struct{} // closed once newest does not change any more
}

func newTracker() *tracker { return &tracker{changed: make(chan struct{}), done: make(chan struct{})} }

// publish makes s the view unless the view is newer.
func (t *tracker) publish(s snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Version <= t.newest.Version {
		return
	}
	t.newest = s
	close(t.changed)
	t.changed = make(chan struct{})
}

// end ends the view's updates. err is the reason, or nil if the member itself wanted the end.
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

// setInterrupt sets the function that interrupts the follower's current wait.
func (t *tracker) setInterrupt(interrupt context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.interrupt = interrupt
}

// behind reports whether the view is older than version, and returns a channel that the next view closes. If the next
// entry may already be deleted, behind makes the follower read the log again.
func (t *tracker) behind(version int64) (<-chan struct{}, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest.Version > 0 && version-t.newest.Version >= keptEntries && t.interrupt != nil {
		t.interrupt()
	}
	return t.changed, t.newest.Version < version
}

// waitVersion waits until the view has version or a later one. After the end it returns an error.
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
