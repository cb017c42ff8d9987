package main

import (
	"context"
	"io"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// trainer computes gradients over its share of the training images. It keeps no state between steps.
type trainer struct {
	options
	out    io.Writer
	images shard
}

// parameterServer has the functions of the server that a trainer calls. They return an error if the server is gone or
// the context has ended.
type parameterServer interface {
	pull(ctx context.Context, steps int) (parameters, error)
	push(ctx context.Context, g gradient) error
}

func newTrainer(o options, images digits, out io.Writer) *trainer {
	return &trainer{options: o, out: out, images: images.training.share(o.rank-1, o.worldSize-1)}
}

// functions returns an empty table: no worker calls a trainer.
func (t *trainer) functions() (*rpc.Functions, error) { return rpc.NewFunctions(), nil }

func (t *trainer) work(ctx context.Context, group *rpc.Group) error {
	return t.train(ctx, remote{group})
}

// train takes part in all remaining steps. A pull waits for the slowest trainer; its limit is the timeout of the group,
// because ctx has no deadline.
func (t *trainer) train(ctx context.Context, server parameterServer) error {
	p, err := server.pull(ctx, 0)
	for err == nil && p.Steps < t.steps {
		if err := t.killIfRequested(p.Steps+1, t.out); err != nil {
			return err
		}
		if err := server.push(ctx, gradient{Steps: p.Steps, Values: t.images.gradient(p.Weights)}); err != nil {
			return err
		}
		p, err = server.pull(ctx, p.Steps+1)
	}
	return err
}
