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
	rosterKey = "roster"
	changeKey = "change/"
)

// kept is the number of entries before the stored roster that stay in the store, for those who are that far behind.
const kept = 256

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

func keyOf(version int64) string { return changeKey + strconv.FormatInt(version, 10) }

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
func (l changeLog) read(ctx context.Context) (roster, error) {
	var r roster
	for {
		stored, _, err := l.stored(ctx)
		switch {
		case err != nil:
			return roster{}, err
		case r.Version > 0 && stored.Version <= r.Version:
			return r, nil
		}
		if r, err = l.onward(ctx, stored); err != nil || r.Version == 0 {
			return r, err
		}
	}
}

// stored returns the roster that is in the store, and its text.
func (l changeLog) stored(ctx context.Context) (roster, []byte, error) {
	text, err := l.peek(ctx, rosterKey)
	if err != nil || text == nil {
		return roster{Floor: 1}, nil, err
	}
	var r roster
	if err := json.Unmarshal(text, &r); err != nil {
		return roster{}, nil, fmt.Errorf("read key %q of the group's store, which another program may have written: %w", rosterKey, err)
	}
	return r, text, nil
}

// onward applies the entries that follow r.
func (l changeLog) onward(ctx context.Context, r roster) (roster, error) {
	for {
		entry, err := l.peek(ctx, keyOf(r.Version+1))
		if err != nil || entry == nil {
			return r, err
		}
		r = r.apply(entry)
	}
}

// commit appends the changes that decide wants: it is asked with the newest roster, again after each entry, whoever
// wrote that, and until it wants nothing more. Returned is the roster it was asked with last. from may be old. An error of the
// store leaves it unknown whether the last change was made.
func (l changeLog) commit(ctx context.Context, from roster, decide func(roster) (*change, error)) (roster, error) {
	for {
		c, err := decide(from)
		if err != nil || c == nil {
			return from, err
		}
		mine := encode(c)
		key := keyOf(from.Version + 1)
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
func (l changeLog) checkpoint(ctx context.Context, r roster) (roster, error) {
	old, text, err := l.stored(ctx)
	for err == nil {
		switch {
		case old.Version >= r.Version+kept:
			if _, err := l.store.Delete(ctx, keyOf(r.Version)); err != nil {
				return roster{}, err
			}
			return l.read(ctx)
		case old.Version >= r.Version:
			return r, nil
		}
		if err := l.prune(ctx, &old); err != nil {
			return roster{}, err
		}
		stored := r
		stored.Floor = old.Floor
		mine := encode(stored)
		found, err := l.store.CompareSet(ctx, rosterKey, text, mine)
		if err != nil {
			return roster{}, err
		}
		if bytes.Equal(found, mine) {
			return r, nil
		}
		old, text, err = l.stored(ctx)
		if err != nil {
			return roster{}, err
		}
	}
	return roster{}, err
}

// prune deletes the entries that are more than kept behind old, which is in the store, and raises its floor. One that dies here leaves
// the floor, and so the deleting, to the next.
func (l changeLog) prune(ctx context.Context, old *roster) error {
	for ; old.Floor <= old.Version-kept; old.Floor++ {
		if _, err := l.store.Delete(ctx, keyOf(old.Floor)); err != nil {
			return err
		}
	}
	return nil
}

// next returns the roster after r, as soon as there is one. It waits for the next entry, and where that turns out to be deleted, or ctx's
// end or a failure has interrupted it, reading the log anew is what helps.
func (l changeLog) next(ctx context.Context, r roster) (roster, error) {
	entry, err := l.store.Get(ctx, keyOf(r.Version+1))
	switch {
	case err != nil:
		return r, err
	case len(entry) == 0: // It was deleted while we were told of it.
		return l.read(ctx)
	}
	return r.apply(entry), nil
}
