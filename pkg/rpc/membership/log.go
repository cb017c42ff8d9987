package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// The keys of the log. Entry V is created once, and whoever waits for its key is told by the store: what commits a change makes it known
// as well. rosterKey holds the roster as of some entry, from which a reader goes on with the entries.
const (
	snapshotKey = "roster"
	changeKey   = "change/"
)

// kept is the number of entries before the stored roster that stay in the store, for those who are that far behind.
const keptEntries = 256

// changeLog is the log of a dynamic group in its store.
//
// Entries are deleted once the stored roster, whose version only rises, is more than kept ahead of them. So a missing key does not prove
// that the log ends there; that the roster in the store is no newer does.
//
// Only who has created an entry sets its key again, to wake others, and then looks at the stored roster, in checkpoint. So an entry that came
// back, because its writer stood still while kept others were made, is deleted again, and the number of keys stays bounded; what is left
// over is one key for each writer that dies right then. Where a writer dies before it wakes the others, they see the entry when
// they look again.
type changeLog struct{ store kvstore.Store }

func entryKey(version int64) string { return changeKey + strconv.FormatInt(version, 10) }

// peek returns the value of key without waiting for it; missing and empty are the same to it.
func (l changeLog) peek(ctx context.Context, key string) ([]byte, error) {
	// What no key of ours holds: where key is missing the store answers just that, and stores nothing.
	nothing := []byte("?")
	value, err := l.store.CompareSet(ctx, key, nothing, nothing)
	if err != nil || bytes.Equal(value, nothing) {
		return nil, err
	}
	return value, nil
}

// read returns the newest roster.
func (l changeLog) read(ctx context.Context) (snapshot, error) {
	var r snapshot
	for {
		stored, _, err := l.stored(ctx)
		switch {
		case err != nil:
			return snapshot{}, err
		case r.Version > 0 && stored.Version <= r.Version:
			return r, nil
		}
		if r, err = l.replay(ctx, stored); err != nil || r.Version == 0 {
			return r, err
		}
	}
}

// stored returns the roster that is in the store, and its text.
func (l changeLog) stored(ctx context.Context) (snapshot, []byte, error) {
	text, err := l.peek(ctx, snapshotKey)
	if err != nil || text == nil {
		return snapshot{Floor: 1}, nil, err
	}
	var r snapshot
	if err := json.Unmarshal(text, &r); err != nil {
		return snapshot{}, nil, fmt.Errorf("read key %q of the group's store, which another program may have written: %w", snapshotKey, err)
	}
	return r, text, nil
}

// onward applies the entries that follow r.
func (l changeLog) replay(ctx context.Context, r snapshot) (snapshot, error) {
	for {
		entry, err := l.peek(ctx, entryKey(r.Version+1))
		if err != nil || entry == nil {
			return r, err
		}
		r = r.apply(entry)
	}
}

// commit appends the changes that decide wants: it is asked with the newest roster, again after each entry, whoever
// wrote that, and until it wants nothing more. Returned is the roster it was asked with last. from may be old. An error of the
// store leaves it unknown whether the last change was made.
func (l changeLog) commit(ctx context.Context, from snapshot, decide func(snapshot) (*change, error)) (snapshot, error) {
	for {
		c, err := decide(from)
		if err != nil || c == nil {
			return from, err
		}
		mine := encode(c)
		key := entryKey(from.Version + 1)
		entry, err := l.store.CompareSet(ctx, key, nil, mine)
		if err != nil {
			return from, err
		}
		next := from.apply(entry)
		if bytes.Equal(entry, mine) {
			wake(ctx, l.store, key, mine)
			if next, err = l.checkpoint(ctx, next); err != nil {
				return from, err
			}
		}
		from = next
	}
}

// checkpoint stores the roster r, whose last entry was just created, and deletes entries that are too old. If that entry's key had been deleted before,
// because the log was far ahead already, it is no entry: then it is removed and the newest roster returned.
func (l changeLog) checkpoint(ctx context.Context, r snapshot) (snapshot, error) {
	old, text, err := l.stored(ctx)
	for err == nil {
		switch {
		case old.Version >= r.Version+keptEntries:
			if _, err := l.store.Delete(ctx, entryKey(r.Version)); err != nil {
				return snapshot{}, err
			}
			return l.read(ctx)
		case old.Version >= r.Version:
			return r, nil
		}
		if err := l.prune(ctx, &old); err != nil {
			return snapshot{}, err
		}
		stored := r
		stored.Floor = old.Floor
		mine := encode(stored)
		found, err := l.store.CompareSet(ctx, snapshotKey, text, mine)
		if err != nil {
			return snapshot{}, err
		}
		if bytes.Equal(found, mine) {
			return r, nil
		}
		old, text, err = l.stored(ctx)
		if err != nil {
			return snapshot{}, err
		}
	}
	return snapshot{}, err
}

// prune deletes the entries that are more than kept behind old, which is in the store, and raises its floor. One that dies here leaves
// the floor, and so the deleting, to the next.
func (l changeLog) prune(ctx context.Context, old *snapshot) error {
	for ; old.Floor <= old.Version-keptEntries; old.Floor++ {
		if _, err := l.store.Delete(ctx, entryKey(old.Floor)); err != nil {
			return err
		}
	}
	return nil
}

// next returns the roster after r, as soon as there is one. It waits for the next entry, and where that turns out to be deleted, or ctx's
// end or a failure has interrupted it, reading the log anew is what helps.
func (l changeLog) next(ctx context.Context, r snapshot) (snapshot, error) {
	entry, err := l.store.Get(ctx, entryKey(r.Version+1))
	switch {
	case err != nil:
		return r, err
	case len(entry) == 0: // It was deleted while we were told of it.
		return l.read(ctx)
	}
	return r.apply(entry), nil
}
