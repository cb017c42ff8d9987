package main

import (
	"context"
	"io"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// trainer computes gradients over its share of the training images. It keeps nothing from one step to the next.
type trainer struct {
	options
	out    io.Writer
	images shard
}

// parameterServer is what a trainer needs of the server. Both calls fail if the server is gone or their context has ended.
type parameterServer interface {
	pull(ctx context.Context, steps int) (parameters, error)
	push(ctx context.Context, g gradient) error
}

func newTrainer(o options, images digits, out io.Writer) *trainer {
	return &trainer{options: o, out: out, images: images.training.share(o.rank-1, o.worldSize-1)}
}

// functions returns none: a trainer is called by nobody.
func (t *trainer) functions() (*rpc.Functions, error) { return rpc.NewFunctions(), nil }

func (t *trainer) work(ctx context.Context, group *rpc.Group) error {
	return t.train(ctx, remote{group})
}

// train helps with all steps that the server still has to do. How long a pull may take is how far the other trainers may
// be behind: the group's timeout, as ctx has none of its own.
func (t *trainer) train(ctx context.Context, server parameterServer) error {
	p, err := server.pull(ctx, 0)
	for err == nil && p.Steps < t.steps {
		if err := t.dieIfTold(p.Steps+1, t.out); err != nil {
			return err
		}
		if err := server.push(ctx, gradient{Steps: p.Steps, Values: t.images.gradient(p.Weights)}); err != nil {
			return err
		}
		p, err = server.pull(ctx, p.Steps+1)
	}
	return err
}
