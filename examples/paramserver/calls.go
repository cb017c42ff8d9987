package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// serverRank is the rank of the parameter server; all others are trainers.
const serverRank = 0

// workerName returns a worker's name in the group.
func workerName(rank int) string {
	if rank == serverRank {
		return "server"
	}
	return fmt.Sprintf("trainer%d", rank)
}

// parameters is the weights after so many steps. Nobody changes them.
type parameters struct {
	Steps   int
	Weights []float64
}

// gradient is what a trainer has found at the weights after so many steps.
type gradient struct {
	Steps  int
	Values []float64 // one for each weight
}

// The functions of the server. A name and its types are all that both sides have to agree on.
var (
	// pull answers with the newest weights, as soon as the server has done that many steps.
	pull = rpc.NewFunc[int, parameters]("pull")
	// push hands over the caller's part of the step that the server is about to do.
	push = rpc.NewFunc[gradient, struct{}]("push")
)

// serve lets other workers call the exchange.
func serve(x *exchange) (*rpc.Functions, error) {
	functions := rpc.NewFunctions()
	err := errors.Join(
		pull.Handle(functions, x.pull),
		push.Handle(functions, func(ctx context.Context, g gradient) (struct{}, error) {
			call, ok := rpc.Incoming(ctx)
			if !ok {
				return struct{}{}, errors.New("push was not called by a worker")
			}
			return struct{}{}, x.push(call.From.ID, g)
		}),
	)
	return functions, err
}

// remote is the server's exchange, seen by a trainer.
type remote struct{ group *rpc.Group }

func (r remote) pull(ctx context.Context, steps int) (parameters, error) {
	return pull.Call(ctx, r.group, workerName(serverRank), steps)
}

func (r remote) push(ctx context.Context, g gradient) error {
	_, err := push.Call(ctx, r.group, workerName(serverRank), g)
	return err
}
