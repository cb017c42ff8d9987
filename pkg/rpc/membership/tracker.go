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
type board struct {
	mu      sync.Mutex
	now     roster
	changed chan struct{}
	lagging context.CancelFunc // interrupts the follower, so that it reads the log anew
	err     error
	done    chan struct{} // closed once now is the last
}

func newBoard() *board { return &board{changed: make(chan struct{}), done: make(chan struct{})} }

// show makes r the view, unless there is a newer one.
func (b *board) show(r roster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Version <= b.now.Version {
		return
	}
	b.now = r
	close(b.changed)
	b.changed = make(chan struct{})
}

// end says that there will be no other view, and why; nil where the member wanted that.
func (b *board) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
	default:
		b.err = err
		close(b.done)
	}
}

func (b *board) roster() roster {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *board) view() View {
	b.mu.Lock()
	defer b.mu.Unlock()
	return View{Version: b.now.Version, Members: slices.Clone(b.now.Members), Changed: b.changed}
}

func (b *board) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// follow tells how to interrupt the wait for the next entry, which is on from now on.
func (b *board) follow(lagging context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lagging = lagging
}

// behind tells whether the roster is older than version, with a channel that the next one closes. Where it is so much
// older that the entry after it may be deleted, the follower is sent to read the log anew.
func (b *board) behind(version int64) (<-chan struct{}, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.Version > 0 && version-b.now.Version >= kept && b.lagging != nil {
		b.lagging()
	}
	return b.changed, b.now.Version < version
}

// reach waits for a view of at least version. After the end there is none.
func (b *board) reach(ctx context.Context, version int64) error {
	for {
		select {
		case <-b.done:
			if err := b.failure(); err != nil {
				return err
			}
			return ErrShutdown
		default:
		}
		changed, behind := b.behind(version)
		if !behind {
			return nil
		}
		select {
		case <-changed:
		case <-b.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
