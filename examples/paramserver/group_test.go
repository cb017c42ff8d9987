package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// Over the network the server gets the same bits as a training in one goroutine.
func TestGroup(t *testing.T) {
	t.Parallel()
	images := testDigits(t)
	o := options{checkpointDir: t.TempDir(), checkpointEvery: 10, reportEvery: 10, steps: 10, worldSize: 4}
	s, err := newServer(o, images, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	store := kvstore.NewHashStore()
	atOnce(t, o, func(ctx context.Context, o options) error {
		var self worker = s
		if o.rank != serverRank {
			self = newTrainer(o, images, io.Discard)
		}
		return join(ctx, store, o, self)
	})
	if diff := cmp.Diff(alone(images, 3, 10), s.model); diff != "" {
		t.Errorf("the server's model (-want +got):\n%s", diff)
	}
}

// join is the second half of run, with a store of the test.
func join(ctx context.Context, store kvstore.Store, o options, self worker) error {
	functions, err := self.functions()
	if err != nil {
		return err
	}
	group, err := rpc.Init(ctx, rpc.Config{
		Name: workerName(o.rank), Rank: o.rank, WorldSize: o.worldSize, Store: store,
		Functions: []*rpc.Functions{functions}, Logger: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	if err := self.work(ctx, group); err != nil {
		return errors.Join(err, group.Close())
	}
	return group.Shutdown(ctx)
}
