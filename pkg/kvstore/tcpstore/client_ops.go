package tcpstore

import (
	"context"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Set implements Store.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	_, err := c.call(ctx, query{op: opSet, keys: []string{key}, values: [][]byte{value}})
	return err
}

// Get implements Store.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	keys := []string{key}
	a, err := c.call(ctx, query{op: opWait, keys: keys}, query{op: opGet, keys: keys})
	if err != nil {
		return nil, err
	}
	return a.values[0], nil
}

// Add implements Store.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	a, err := c.call(ctx, query{op: opAdd, keys: []string{key}, number: delta})
	return a.number, err
}

// CompareSet implements Store.
func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	a, err := c.call(ctx, query{op: opCompareSet, keys: []string{key}, values: [][]byte{expected, desired}})
	if err != nil {
		return nil, err
	}
	return a.values[0], nil
}

// Check implements Store.
func (c *Client) Check(ctx context.Context, keys ...string) (bool, error) {
	a, err := c.call(ctx, query{op: opCheck, keys: keys})
	return err == nil && a.flag == answerReady, err
}

// Wait implements Store.
func (c *Client) Wait(ctx context.Context, keys ...string) error {
	_, err := c.call(ctx, query{op: opWait, keys: keys})
	return err
}

// NumKeys implements Store. It counts the key "init/" of wait_for_workers, too.
func (c *Client) NumKeys(ctx context.Context) (int64, error) {
	a, err := c.call(ctx, query{op: opNumKeys})
	return a.number, err
}

// Delete implements Store.
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	a, err := c.call(ctx, query{op: opDelete, keys: []string{key}})
	return a.number == 1, err
}

// Append implements Store. torch 1.x has no such request.
func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	_, err := c.call(ctx, query{op: opAppend, keys: []string{key}, values: [][]byte{value}})
	return err
}

// MultiGet implements Store. The values are those of one moment, except with torch 1.x, where they are got one after
// another.
func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	queries := []query{{op: opWait, keys: keys}}
	if c.opts.Generation == FirstGeneration {
		for i := range keys {
			queries = append(queries, query{op: opGet, keys: keys[i : i+1]})
		}
	} else {
		queries = append(queries, query{op: opMultiGet, keys: keys})
	}
	a, err := c.call(ctx, queries...)
	return a.values, err
}

// MultiSet implements Store. With torch 1.x the pairs are set one after another.
func (c *Client) MultiSet(ctx context.Context, pairs ...kvstore.Pair) error {
	keys, values := make([]string, len(pairs)), make([][]byte, len(pairs))
	for i, pair := range pairs {
		keys[i], values[i] = pair.Key, pair.Value
	}
	if c.opts.Generation != FirstGeneration {
		_, err := c.call(ctx, query{op: opMultiSet, keys: keys, values: values})
		return err
	}
	queries := make([]query, len(pairs))
	for i := range pairs {
		queries[i] = query{op: opSet, keys: keys[i : i+1], values: values[i : i+1]}
	}
	if len(queries) == 0 {
		return nil
	}
	_, err := c.call(ctx, queries...)
	return err
}
