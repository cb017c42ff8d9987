package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// These are the keys of the log. Entry V is created once under changeKey + V. The store wakes everybody who waits for
// that key, so the commit is also the notification. snapshotKey holds a snapshot of the members; a reader starts from
// it and applies the entries after it.
const (
	snapshotKey = "roster"
	changeKey   = "change/"
)

// keptEntries is the number of entries before the stored snapshot that stay in the store for members that lag.
const keptEntries = 256

// changeLog is the log of a dynamic group in its store.
//
// The version of the stored snapshot only increases. An entry may be deleted once the stored snapshot is keptEntries or
// more ahead of it. So a missing entry proves the end of the log only if the stored snapshot is no newer.
//
// Only the creator of an entry sets its key again, to wake others. Then checkpoint reads the stored snapshot. If the
// writer was paused while keptEntries other entries were made, its Set recreates a deleted entry, and checkpoint
// deletes it again. So the number of keys stays bounded. A writer that dies at that moment leaves one key. If a writer
// dies before it wakes the others, they see the entry at their next read.
type changeLog struct{ store kvstore.Store }

func entryKey(version int64) string { return changeKey + strconv.FormatInt(version, 10) }

// peek returns the value of key without waiting for it. It does not distinguish a missing key from an empty value.
func (l changeLog) peek(ctx context.Context, key string) ([]byte, error) {
	// No key of the group holds this value. If key is missing, the store returns it and stores nothing.
	nothing := []byte("?")
	value, err := l.store.CompareSet(ctx, key, nothing, nothing)
	if err != nil || bytes.Equal(value, nothing) {
		return nil, err
	}
	return value, nil
}

// read returns the newest snapshot.
func (l changeLog) read(ctx context.Context) (snapshot, error) {
	var s snapshot
	for {
		stored, _, err := l.stored(ctx)
		switch {
		case err != nil:
			return snapshot{}, err
		case s.Version > 0 && stored.Version <= s.Version:
			return s, nil
		}
		if s, err = l.replay(ctx, stored); err != nil || s.Version == 0 {
			return s, err
		}
	}
}

// stored returns the snapshot in the store, decoded and raw.
func (l changeLog) stored(ctx context.Context) (snapshot, []byte, error) {
	text, err := l.peek(ctx, snapshotKey)
	if err != nil || text == nil {
		return snapshot{Floor: 1}, nil, err
	}
	var s snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return snapshot{}, nil, fmt.Errorf(
			"read key %q of the group's store, which another program may have written: %w", snapshotKey, err)
	}
	return s, text, nil
}

// replay applies the entries that follow s.
func (l changeLog) replay(ctx context.Context, s snapshot) (snapshot, error) {
	for {
		entry, err := l.peek(ctx, entryKey(s.Version+1))
		if err != nil || entry == nil {
			return s, err
		}
		s = s.apply(entry)
	}
}

// commit appends the changes that decide returns. It calls decide with from, which may be old, and again after each
// further entry of any writer, until decide returns no change. It returns the snapshot of the last call. After an error
// of the store it is unknown whether the last change was made.
func (l changeLog) commit(
	ctx context.Context, from snapshot, decide func(snapshot) (*change, error),
) (snapshot, error) {
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

// checkpoint stores the snapshot s, whose last entry this member just created, and deletes old entries. If the stored
// snapshot is already keptEntries or more ahead, this member may have recreated a deleted entry, which does not count.
// Then checkpoint deletes the entry's key and returns the newest snapshot.
func (l changeLog) checkpoint(ctx context.Context, s snapshot) (snapshot, error) {
	old, text, err := l.stored(ctx)
	for err == nil {
		switch {
		case old.Version >= s.Version+keptEntries:
			if _, err := l.store.Delete(ctx, entryKey(s.Version)); err != nil {
				return snapshot{}, err
			}
			return l.read(ctx)
		case old.Version >= s.Version:
			return s, nil
		}
		if err := l.prune(ctx, &old); err != nil {
			return snapshot{}, err
		}
		stored := s
		stored.Floor = old.Floor
		mine := encode(stored)
		found, err := l.store.CompareSet(ctx, snapshotKey, text, mine)
		if err != nil {
			return snapshot{}, err
		}
		if bytes.Equal(found, mine) {
			return s, nil
		}
		old, text, err = l.stored(ctx)
		if err != nil {
			return snapshot{}, err
		}
	}
	return snapshot{}, err
}

// prune deletes the entries that are keptEntries or more behind old, the stored snapshot, and raises its floor. If a
// writer dies during prune, the stored floor stays, and the next writer deletes the rest.
func (l changeLog) prune(ctx context.Context, old *snapshot) error {
	for ; old.Floor <= old.Version-keptEntries; old.Floor++ {
		if _, err := l.store.Delete(ctx, entryKey(old.Floor)); err != nil {
			return err
		}
	}
	return nil
}

// next waits for the entry after s and returns the snapshot with it. If the entry was deleted, the store failed or ctx
// ended, the caller must read the log again.
func (l changeLog) next(ctx context.Context, s snapshot) (snapshot, error) {
	entry, err := l.store.Get(ctx, entryKey(s.Version+1))
	switch {
	case err != nil:
		return s, err
	case len(entry) == 0: // The entry was deleted after it woke this member.
		return l.read(ctx)
	}
	return s.apply(entry), nil
}
