package certfiles

import (
	"testing"
	"time"
)

// TestVersions checks when files are read: when their stamps differ from those of the latest reading, and once more if
// that reading came soon after a change.
func TestVersions(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	at := func(inode uint64, modified time.Duration) stamps {
		return stamps{{inode: inode, size: 7, modified: start.Add(modified).UnixNano()}}
	}
	old, broken, worse, fixed := at(1, -time.Hour), at(2, 10*time.Second), stamps{}, at(3, 100*time.Second)
	v := versions{latest: old}
	for i, step := range []struct {
		now      stamps
		at       time.Duration
		mustRead bool
		usable   bool
		news     news
	}{
		{now: old, mustRead: true, usable: true}, // the first reading
		{now: old, at: time.Second},
		{now: broken, at: 11 * time.Second, mustRead: true, news: unusable},
		{now: broken, at: 11 * time.Second, mustRead: true}, // it may have changed since: no second warning
		{now: broken, at: 20 * time.Second, mustRead: true},
		{now: broken, at: 30 * time.Second},
		{now: worse, at: 40 * time.Second, mustRead: true}, // still broken, in another way
		{now: worse, at: 50 * time.Second},
		{now: fixed, at: 100 * time.Second, mustRead: true, usable: true, news: replaced},
		{now: fixed, at: 110 * time.Second, mustRead: true, usable: true},
		{now: fixed, at: 120 * time.Second},
		{now: old, at: 130 * time.Second, mustRead: true, usable: true, news: replaced},
		{now: broken, at: 140 * time.Second, mustRead: true, news: unusable},
		{now: old, at: 150 * time.Second, mustRead: true, usable: true, news: replaced}, // the change was undone
		{now: old, at: 160 * time.Second},
	} {
		if got := v.mustRead(step.now); got != step.mustRead {
			t.Fatalf("step %d: must read: %v, want %v", i, got, step.mustRead)
		}
		if !step.mustRead {
			continue
		}
		if got := v.read(step.now, start.Add(step.at), step.usable); got != step.news {
			t.Fatalf("step %d: news %d, want %d", i, got, step.news)
		}
	}
}
