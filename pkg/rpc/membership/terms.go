package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// termsKey holds the terms, or an empty value once the first member has withdrawn them.
const termsKey = "terms"

// terms are the properties that all members must share. The first member sets them.
type terms struct {
	Version     int    `json:"version"`
	WorldSize   int    `json:"world_size"`
	Secure      bool   `json:"secure"`
	By          string `json:"by"`
	Incarnation uint64 `json:"incarnation,string"`
	// Shared is set by the second member, the first one to agree. After that the terms cannot be withdrawn.
	Shared bool `json:"shared,omitempty"`
}

func termsOf(self Record) terms {
	return terms{
		Version: self.Version, WorldSize: self.WorldSize, Secure: self.Secure,
		By: self.Name, Incarnation: self.Incarnation,
	}
}

// Agree compares version, world size and TLS of this worker with those of the group's first member. A worker that
// differs gets a [*VersionError], [*WorldSizeError] or [*SecurityError], and the group does not notice it. If the first
// member is the wrong one, all others get an error that names it, until it fails alone and withdraws its terms. A
// dynamic group has world size 0.
func Agree(ctx context.Context, store kvstore.Store, self Record) error {
	own := termsOf(self)
	mine := encode(own)
	expected, desired := []byte(nil), mine
	for {
		got, err := store.CompareSet(ctx, termsKey, expected, desired)
		if err != nil {
			return fmt.Errorf("worker %q: agree with its group: %w", self.Name, err)
		}
		if bytes.Equal(got, desired) {
			return nil
		}
		// Either the first member has withdrawn the terms, or the store has lost them.
		if len(got) == 0 || bytes.Equal(got, expected) {
			expected, desired = nil, mine
			continue
		}
		var found terms
		if err := json.Unmarshal(got, &found); err != nil {
			return fmt.Errorf("worker %q: store key %q holds no terms of a group: %w", self.Name, termsKey, err)
		}
		if err := found.mismatch(own); err != nil || found.Shared {
			return err
		}
		found.Shared = true
		expected, desired = got, encode(found)
	}
}

// termsUnshared reports whether self set the terms and no other member has agreed to them so far.
func termsUnshared(ctx context.Context, store kvstore.Store, self Record) bool {
	got, err := changeLog{store}.peek(ctx, termsKey)
	return err == nil && bytes.Equal(got, encode(termsOf(self)))
}

// withdrawTerms withdraws the terms that self set, and reports whether it did. It fails once another member has agreed.
// A member that agrees changes the key before it claims anything, and the store orders the two changes. So either the
// terms stay, or the other member finds none and sets its own.
func withdrawTerms(ctx context.Context, store kvstore.Store, self Record) bool {
	got, err := store.CompareSet(ctx, termsKey, encode(termsOf(self)), nil)
	return err == nil && len(got) == 0
}

// mismatch returns an error if a member with the terms own does not belong to the group.
func (t terms) mismatch(own terms) error {
	switch {
	case t.Version != own.Version:
		return &VersionError{Worker: own.By, Version: own.Version, By: t.By, Want: t.Version}
	case t.WorldSize != own.WorldSize:
		return &WorldSizeError{Worker: own.By, WorldSize: own.WorldSize, By: t.By, Want: t.WorldSize}
	case t.Secure != own.Secure:
		return &SecurityError{Worker: own.By, Secure: own.Secure, By: t.By}
	}
	return nil
}
