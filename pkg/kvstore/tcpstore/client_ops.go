package tcpstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// Set implements [kvstore.Store].
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	_, err := c.call(ctx, query{op: opSet, keys: []string{key}, values: [][]byte{value}})
	return err
}

// Get implements [kvstore.Store].
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	keys := []string{key}
	a, err := c.call(ctx, query{op: opWait, keys: keys}, query{op: opGet, keys: keys})
	if err != nil {
		return nil, err
	}
	return a.values[0], nil
}

// Add implements [kvstore.Store].
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	a, err := c.call(ctx, query{op: opAdd, keys: []string{key}, number: delta})
	return a.number, err
}

// CompareSet implements [kvstore.Store].
func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	a, err := c.call(ctx, query{op: opCompareSet, keys: []string{key}, values: [][]byte{expected, desired}})
	if err != nil {
		return nil, err
	}
	return a.values[0], nil
}

// Check implements [kvstore.Store].
func (c *Client) Check(ctx context.Context, keys ...string) (bool, error) {
	a, err := c.call(ctx, query{op: opCheck, keys: keys})
	return err == nil && a.flag == replyReady, err
}

// Wait implements [kvstore.Store].
func (c *Client) Wait(ctx context.Context, keys ...string) error {
	_, err := c.call(ctx, query{op: opWait, keys: keys})
	return err
}

// NumKeys implements [kvstore.Store]. It also counts the key "init/" of wait_for_workers.
func (c *Client) NumKeys(ctx context.Context) (int64, error) {
	a, err := c.call(ctx, query{op: opNumKeys})
	return a.number, err
}

// Delete implements [kvstore.Store].
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	a, err := c.call(ctx, query{op: opDelete, keys: []string{key}})
	return a.number == 1, err
}

// Append implements [kvstore.Store]. torch 1.x has no such request.
func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	_, err := c.call(ctx, query{op: opAppend, keys: []string{key}, values: [][]byte{value}})
	return err
}

// MultiGet implements [kvstore.Store]. It reads all values at one moment; from a torch 1.x server it reads them one
// after another.
func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	queries := []query{{op: opWait, keys: keys}}
	if c.opts.Protocol == ProtocolV1 {
		for i := range keys {
			queries = append(queries, query{op: opGet, keys: keys[i : i+1]})
		}
	} else {
		queries = append(queries, query{op: opMultiGet, keys: keys})
	}
	a, err := c.call(ctx, queries...)
	return a.values, err
}

// MultiSet implements [kvstore.Store]. With a torch 1.x server it sets the pairs one after another.
func (c *Client) MultiSet(ctx context.Context, pairs ...kvstore.Pair) error {
	keys, values := make([]string, len(pairs)), make([][]byte, len(pairs))
	for i, pair := range pairs {
		keys[i], values[i] = pair.Key, pair.Value
	}
	if c.opts.Protocol != ProtocolV1 {
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

// The operations below are in protocol 2 but not in kvstore.Store. With a torch 1.x server they return ErrProtocol. An
// early torch 2.x server closes the connection on a request that it does not know, which is an ErrConnection.

// QueuePush appends value to the queue of key. Queues are separate from the other keys: Get, Delete and NumKeys do not
// see them. Check and Wait count a queue that is not empty as present.
func (c *Client) QueuePush(ctx context.Context, key string, value []byte) error {
	_, err := c.call(ctx, query{op: opQueuePush, keys: []string{key}, values: [][]byte{value}})
	return err
}

// QueuePop removes and returns the first value from the queue of key. It blocks until the queue has a value.
func (c *Client) QueuePop(ctx context.Context, key string) ([]byte, error) {
	keys := []string{key}
	for {
		a, err := c.call(ctx, query{op: opWait, keys: keys}, query{op: opQueuePop, keys: keys})
		switch {
		case err != nil:
			return nil, err
		case a.number > 0:
			return a.values[0], nil
		}
		// Another client popped the value first.
	}
}

// TryQueuePop removes and returns the first value from the queue of key. It returns false if the queue is empty.
func (c *Client) TryQueuePop(ctx context.Context, key string) ([]byte, bool, error) {
	a, err := c.call(ctx, query{op: opQueuePop, keys: []string{key}})
	if err != nil || a.number == 0 {
		return nil, false, err
	}
	return a.values[0], true, nil
}

// QueueLen returns the number of values in the queue of key.
func (c *Client) QueueLen(ctx context.Context, key string) (int64, error) {
	a, err := c.call(ctx, query{op: opQueueLen, keys: []string{key}})
	return a.number, err
}

// ListKeys returns the keys of users, in no particular order. As in torch, the key "init/" is not among them, although
// NumKeys counts it.
func (c *Client) ListKeys(ctx context.Context) ([]string, error) {
	a, err := c.call(ctx, query{op: opListKeys})
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, value := range a.values {
		if key, ok := strings.CutPrefix(string(value), keyPrefix); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// ServerBarrier returns when worldSize clients have called it with the same key. Unlike [kvstore.Barrier], it takes
// one request, and the server counts. An arrival whose context ends stays counted. A key serves once: later calls pass
// at once.
func (c *Client) ServerBarrier(ctx context.Context, key string, worldSize int) error {
	if worldSize < 1 {
		return fmt.Errorf("barrier %q: world size %d, want at least 1", key, worldSize)
	}
	_, err := c.call(ctx, query{op: opBarrier, keys: []string{key}, number: int64(worldSize)})
	return err
}
