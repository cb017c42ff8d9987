package membership

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// A member of a static group claims its name first and its rank second. The other members read only the rank's key. So
// a worker whose name or rank is taken withdraws without a trace, and the correct worker can still take its place.
const (
	nameKey = "name/"   // + name: the record of the worker that claims the name; empty once that worker has withdrawn
	rankKey = "member/" // + rank: the record of the member with that rank
)

// claim is a member's claim to its name and rank in the store.
type claim struct {
	store  kvstore.Store
	self   Record
	record []byte
}

// acquire claims name and rank. After an error nothing of the claim is left, unless the store cannot be reached.
func (c *claim) acquire(ctx context.Context) error {
	err := c.claimName(ctx)
	named := err == nil
	if named {
		err = c.claimRank(ctx)
	}
	if err != nil {
		cleanup, cancel := cleanupContext(ctx)
		defer cancel()
		c.withdrawName(cleanup)
		// If the rank was claimed too, that claim may still be on its way to the store, and it needs these terms.
		if !named {
			withdrawTerms(cleanup, c.store, c.self)
		}
	}
	return err
}

// undo removes a successful claim and its terms if no other worker has agreed to the terms, which means that nobody has
// read the claim. It deletes the terms last, so that a later worker finds nothing. It returns false if another worker
// has agreed meanwhile; the caller must then report the failure to that worker.
func (c *claim) undo(ctx context.Context) bool {
	if !termsUnshared(ctx, c.store, c.self) {
		return false
	}
	c.withdrawName(ctx)
	if _, err := c.store.Delete(ctx, rankKey+strconv.Itoa(c.self.ID)); err != nil {
		return false
	}
	return withdrawTerms(ctx, c.store, c.self)
}

// claimName claims the name. A name is free if its holder's rank belongs to another worker: the group refused that
// holder, which withdraws soon or has died.
func (c *claim) claimName(ctx context.Context) error {
	key := nameKey + c.self.Name
	var expected []byte
	for {
		got, err := c.store.CompareSet(ctx, key, expected, c.record)
		if err != nil {
			return fmt.Errorf("worker %q: claim the worker name: %w", c.self.Name, err)
		}
		if bytes.Equal(got, c.record) {
			return nil
		}
		if len(got) == 0 { // the holder has withdrawn
			expected = nil
			continue
		}
		holder, err := decodeRecord(key, got)
		if err != nil {
			return err
		}
		refused, err := c.holderRefused(ctx, holder)
		if err != nil {
			return fmt.Errorf("worker %q: look up the holder of the name: %w", c.self.Name, err)
		}
		if !refused {
			return &NameTakenError{Name: c.self.Name, ID: holder.ID, Host: holder.Host, Address: holder.Address}
		}
		expected = got
	}
}

// holderRefused reports whether the rank in holder's record belongs to another worker.
func (c *claim) holderRefused(ctx context.Context, holder Record) (bool, error) {
	key := rankKey + strconv.Itoa(holder.ID)
	if there, err := c.store.Check(ctx, key); !there || err != nil {
		return false, err
	}
	data, err := c.store.Get(ctx, key)
	if err != nil {
		return false, err
	}
	member, err := decodeRecord(key, data)
	return err == nil && member.Incarnation != holder.Incarnation, err
}

// claimRank claims the rank. If the outcome is unknown, claimRank reads the key: a claim in the store cannot be
// withdrawn, because other members may have read it.
func (c *claim) claimRank(ctx context.Context) error {
	key := rankKey + strconv.Itoa(c.self.ID)
	got, err := create(ctx, c.store, key, c.record)
	if err != nil {
		if c.isStored(ctx, key) {
			wake(ctx, c.store, key, c.record)
			return nil
		}
		return fmt.Errorf("worker %q: claim rank %d: %w", c.self.Name, c.self.ID, err)
	}
	if bytes.Equal(got, c.record) {
		return nil
	}
	by, err := decodeRecord(key, got)
	if err != nil {
		return err
	}
	return &RankTakenError{Worker: c.self.Name, Rank: c.self.ID, By: by.Name, Host: by.Host, Address: by.Address}
}

// isStored reports whether key holds this claim.
func (c *claim) isStored(ctx context.Context, key string) bool {
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	if there, err := c.store.Check(cleanup, key); !there || err != nil {
		return false
	}
	got, err := c.store.Get(cleanup, key)
	return err == nil && bytes.Equal(got, c.record)
}

// withdrawName releases the name if this claim holds it.
func (c *claim) withdrawName(ctx context.Context) {
	_, _ = c.store.CompareSet(ctx, nameKey+c.self.Name, c.record, nil) // nothing is left to do after a failure
}
