// Paramserver trains a digit classifier with a parameter server, in Go only. It is an example of package rpc.
//
//	go build -o /tmp/paramserver ./examples/paramserver
//	elasticrun --nproc-per-node 4 --max-restarts 1 --no-python /tmp/paramserver --checkpoint-dir /tmp/weights
//
// Run this in the root of the repository. Or run examples/paramserver/run.sh ELASTICRUN, which also kills a worker. The
// job may have 2 or more workers on any number of nodes. All nodes must share the checkpoint folder.
//
// Rank 0 is the parameter server, with the worker name "server". The others are trainers, named "trainer1", "trainer2"
// and so on. Each trainer has a share of the training images. In every step a trainer pulls the weights from the
// server, computes the gradient over its share and pushes it. The server sums the gradients, updates the weights, and
// answers the pulls of the next step. calls.go has the functions that workers call, exchange.go the waiting between
// steps. Nothing is random, and the server sums in rank order. So the result is the same to the last bit in whatever
// order the gradients arrive.
//
// The server writes checkpoints. If a worker dies, elasticrun restarts all workers, which form a new group. The server
// continues from its checkpoint, and the trainers from the weights of the server. Such a run ends with the same weights
// as an undisturbed run with the same number of trainers.
//
// The digits, options and output are those of examples/digits, which does the same without a server.
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

// worker is a process of the job: the server or a trainer.
type worker interface {
	// functions returns the functions that other workers can call.
	functions() (*rpc.Functions, error)
	// work does the part of this worker in the training, as a member of group.
	work(ctx context.Context, group *rpc.Group) error
}

// run reads the input of a worker, joins the group, trains, and leaves when all workers are done.
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
		_ = group.Close() // at once; the first error counts
		return err
	}
	// Shutdown waits until no worker has a call under way. So no trainer loses the server or a late answer.
	return group.Shutdown(ctx)
}

// newWorker creates the worker of this rank from files only, so invalid files are reported before the worker joins the
// group.
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

// inputError is an error that the user can fix: invalid input.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// exitCode prints an error in one line and returns the exit code: 0 without an error, 2 for invalid input, 1 otherwise.
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
