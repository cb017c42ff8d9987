package membership

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// A member of a static group claims its name first, which the others do not read, and then its rank, by which they know it.
// So a worker whose name or rank is taken withdraws without a trace, and the one that was meant may still come.
const (
	nameKey = "name/"   // and the name: the record of the worker that claims it, or nothing once it has withdrawn
	rankKey = "member/" // and the rank: the member's record
)

// claim is a member's record, and what it says in the store.
type claim struct {
	store  kvstore.Store
	self   Record
	record []byte
}

// make claims name and rank. After an error nothing of the claim is left, unless the store cannot be reached any more.
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
		if !named { // A rank that was asked for may still come to be claimed, and belongs to these terms.
			withdrawTerms(cleanup, c.store, c.self)
		}
	}
	return err
}

// undo takes a claim back that stands, and the terms, if no other worker has agreed to them: then nobody has read it. The terms are last, so that
// who comes after finds nothing. It is false if another worker was there, or came just then: that one must be told of the failure.
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

// name claims the name. One that is held by a worker whose rank is another one's is free: that worker was refused, and is
// about to withdraw, or has died before it could.
func (c *claim) claimName(ctx context.Context) error {
	key := nameKey + c.self.Name
	var expected []byte
	for {
		got, err := c.store.CompareSet(ctx, key, expected, c.record)
		if err != nil {
			return fmt.Errorf("worker %q: claim its name: %w", c.self.Name, err)
		}
		if bytes.Equal(got, c.record) {
			return nil
		}
		if len(got) == 0 { // it has withdrawn
			expected = nil
			continue
		}
		holder, err := decodeRecord(key, got)
		if err != nil {
			return err
		}
		refused, err := c.holderRefused(ctx, holder)
		if err != nil {
			return fmt.Errorf("worker %q: see who has its name: %w", c.self.Name, err)
		}
		if !refused {
			return &NameTakenError{Name: c.self.Name, ID: holder.ID, Host: holder.Host, Address: holder.Address}
		}
		expected = got
	}
}

// void tells whether the rank that holder wants is another worker's.
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

// rank claims the rank. Where it is not known whether the store has done it, it is looked up, since a claim that stands cannot
// be withdrawn: others may have read it.
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

// stands tells whether key holds this claim.
func (c *claim) isStored(ctx context.Context, key string) bool {
	cleanup, cancel := cleanupContext(ctx)
	defer cancel()
	if there, err := c.store.Check(cleanup, key); !there || err != nil {
		return false
	}
	got, err := c.store.Get(cleanup, key)
	return err == nil && bytes.Equal(got, c.record)
}

// withdraw gives the name back, if it is this claim's.
func (c *claim) withdrawName(ctx context.Context) {
	_, _ = c.store.CompareSet(ctx, nameKey+c.self.Name, c.record, nil) // nobody is left to be told of a failure
}
