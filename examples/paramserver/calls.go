package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// serverRank is the rank of the parameter server; the others are trainers.
const serverRank = 0

// workerName returns the name of a worker in the group.
func workerName(rank int) string {
	if rank == serverRank {
		return "server"
	}
	return fmt.Sprintf("trainer%d", rank)
}

// parameters are the weights after a number of steps. They are immutable.
type parameters struct {
	Steps   int
	Weights []float64
}

// gradient is the gradient of a trainer at the weights after a number of steps.
type gradient struct {
	Steps  int
	Values []float64 // one for each weight
}

// The functions of the server. Both sides must agree on the names and the types.
var (
	// pull returns the newest weights, after the server has done that number of steps.
	pull = rpc.NewFunc[int, parameters]("pull")
	// push passes the caller's gradient for the next step.
	push = rpc.NewFunc[gradient, struct{}]("push")
)

// serve returns the functions by which other workers call the exchange.
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

// remote is the exchange of the server, as a trainer calls it.
type remote struct{ group *rpc.Group }

func (r remote) pull(ctx context.Context, steps int) (parameters, error) {
	return pull.Call(ctx, r.group, workerName(serverRank), steps)
}

func (r remote) push(ctx context.Context, g gradient) error {
	_, err := push.Call(ctx, r.group, workerName(serverRank), g)
	return err
}
