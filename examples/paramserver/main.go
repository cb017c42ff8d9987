// Paramserver trains a digit classifier with a parameter server, in Go alone: an example of package rpc.
//
//	go build -o /tmp/paramserver ./examples/paramserver
//	elasticrun --nproc-per-node 4 --max-restarts 1 --no-python /tmp/paramserver --checkpoint-dir /tmp/weights
//
// from the repository's root, or examples/paramserver/run.sh ELASTICRUN, which also kills a worker on the way. The job
// may have any number of workers from 2 on, on any number of nodes, if the checkpoint's folder is one that all nodes see.
//
// Rank 0 is the parameter server, the worker "server". The others are trainers, "trainer1", "trainer2" and so on; each
// has its share of the training images. In every step a trainer pulls the weights from the server, computes the gradient
// over its share and pushes it. The server adds up what all have pushed, moves the weights, and answers the pulls of the
// next step (calls.go has what the workers call of each other, exchange.go how a step is waited for). Nothing is random
// and the server adds in rank order, so the result is the same to the last bit whichever gradient comes first.
//
// The server keeps checkpoints. If a worker dies, elasticrun starts all of them anew, in a new group; the server goes on
// from its checkpoint and the trainers from wherever the server is. Such a run ends with the very same weights as one
// that was not disturbed, if it has as many trainers.
//
// The digits, the options and what is printed are those of examples/digits, which does the same without a server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

func main() {
	os.Exit(exitCode(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout), os.Stderr))
}

// worker is one process of the job, the server or a trainer.
type worker interface {
	// functions returns what other workers may call here.
	functions() (*rpc.Functions, error)
	// work does this worker's part of the training, as a member of group.
	work(ctx context.Context, group *rpc.Group) error
}

// run is a worker's life: read what it needs, join the group, work, leave when all are done.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	o, err := parse(args, getenv)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage())
		return nil
	}
	if err != nil {
		return err
	}
	self, err := newWorker(o, out)
	if err != nil {
		return err
	}
	functions, err := self.functions()
	if err != nil {
		return err
	}
	group, err := rpc.InitFromEnv(ctx, workerName(o.rank), functions)
	if err != nil {
		return err
	}
	if err := self.work(ctx, group); err != nil {
		_ = group.Close() // at once, and what came first is what counts
		return err
	}
	// Graceful: until nobody has a call under way any more, so nobody loses its server or a late answer.
	return group.Shutdown(ctx)
}

// newWorker makes the worker of this rank from files alone, so that bad ones are known before anybody is asked anything.
func newWorker(o options, out io.Writer) (worker, error) {
	images, err := loadDigits(o.data)
	if err != nil {
		return nil, inputError{err}
	}
	if o.rank == serverRank {
		return newServer(o, images, out)
	}
	return newTrainer(o, images, out), nil
}

// inputError is bad input: its user has to change something.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// exitCode tells how a run ended, in one line if it was not well: 2 is bad input, 1 anything else.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "paramserver: %v\n", err)
	if errors.As(err, &inputError{}) {
		return 2
	}
	return 1
}
