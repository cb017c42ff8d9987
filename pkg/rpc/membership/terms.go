package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// termsKey holds what all members must have in common, or nothing once the first has taken it back.
const termsKey = "terms"

// terms are set by the member that comes first.
type terms struct {
	Version     int    `json:"version"`
	WorldSize   int    `json:"world_size"`
	Secure      bool   `json:"secure"`
	By          string `json:"by"`
	Incarnation uint64 `json:"incarnation,string"`
	// Shared is set by the first other member that agrees. From then on the terms stay.
	Shared bool `json:"shared,omitempty"`
}

func termsOf(self Record) terms {
	return terms{Version: self.Version, WorldSize: self.WorldSize, Secure: self.Secure, By: self.Name, Incarnation: self.Incarnation}
}

// Agree makes version, world size and TLS of the first member of a group those of all: a worker with others gets a [*VersionError],
// [*WorldSizeError] or [*SecurityError], and the group does not notice it. Where it is the first that is wrong, all the
// others are refused, and the error names it, until it fails without them and takes its terms back. A dynamic group has world size 0.
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
		if len(got) == 0 || bytes.Equal(got, expected) { // The first has taken them back, or the store has lost them.
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

// alone tells whether the terms are self's, and nobody else has agreed to them so far.
func termsUnshared(ctx context.Context, store kvstore.Store, self Record) bool {
	got, err := changeLog{store}.peek(ctx, termsKey)
	return err == nil && bytes.Equal(got, encode(termsOf(self)))
}

// disagree takes the terms back that self has set, and tells whether it has done so. It does not where another member has agreed to them, since
// whoever agrees has changed what the key holds before it claims anything: of the two that change it at once the store lets one be
// first, and either the terms stay, or the other one finds none and sets its own.
func withdrawTerms(ctx context.Context, store kvstore.Store, self Record) bool {
	got, err := store.CompareSet(ctx, termsKey, encode(termsOf(self)), nil)
	return err == nil && len(got) == 0
}

// refuse returns why a member with the terms own does not belong to the group, or nil.
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
